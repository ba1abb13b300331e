package pglocal

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	embedded "github.com/fergusstrange/embedded-postgres"
)

// releases are the builds that can be downloaded, by major version.
var releases = map[int]embedded.PostgresVersion{
	15: embedded.V15, 16: embedded.V16, 17: embedded.V17, 18: embedded.V18,
}

// download fetches the programs into the cache, once a machine and version.
//
// The library offers no way to fetch without starting a server. It unpacks
// before it runs initdb, though, so its data directory is put where no
// directory can be: below a file. Start then always fails, nothing runs, and
// what counts is whether the programs are there and tell their version.
func download(ctx context.Context, a account, major int) (programs, error) {
	if major == 0 {
		major = 18
	}
	release, ok := releases[major]
	if !ok {
		return programs{}, fmt.Errorf("no build of PostgreSQL %d to download", major)
	}
	cache := cacheDir(a)
	final := filepath.Join(cache, "postgresql-"+string(release))
	if p, err := probe(ctx, filepath.Join(final, "bin"), a); err == nil {
		return p, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return programs{}, err
	}
	lock, err := lockFile(final+".lock", true)
	if err != nil {
		return programs{}, err
	}
	defer lock.Close()
	if p, err := probe(ctx, filepath.Join(final, "bin"), a); err == nil {
		return p, nil // somebody else fetched it while we waited
	}

	work, err := os.MkdirTemp(cache, "fetch-")
	if err != nil {
		return programs{}, err
	}
	defer os.RemoveAll(work)
	blocked := filepath.Join(work, "file")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		return programs{}, err
	}
	config := embedded.DefaultConfig().
		Version(release).
		Port(uint32(freePort())).
		CachePath(filepath.Join(work, "archive")).
		RuntimePath(filepath.Join(work, "runtime")).
		BinariesPath(filepath.Join(work, "programs")).
		DataPath(filepath.Join(blocked, "data")).
		Logger(io.Discard)
	if host := os.Getenv("PAWL_PG_REPOSITORY"); host != "" {
		config = config.BinaryRepositoryURL(host) // a mirror of Maven Central
	}
	fetched := make(chan error, 1)
	go func() { fetched <- embedded.NewDatabase(config).Start() }()
	select {
	case err = <-fetched:
	case <-ctx.Done():
		// The library knows no context; its transfer ends with the process.
		return programs{}, ctx.Err()
	}
	if err := os.Chmod(work, 0o755); err != nil {
		return programs{}, err
	}
	if _, probeErr := probe(ctx, filepath.Join(work, "programs", "bin"), a); probeErr != nil {
		return programs{}, fmt.Errorf("download PostgreSQL %s: %w", release, err)
	}
	_ = os.RemoveAll(final) // a half of an earlier attempt that no longer works
	if err := os.Rename(filepath.Join(work, "programs"), final); err != nil {
		return programs{}, err
	}
	return probe(ctx, filepath.Join(final, "bin"), a)
}
