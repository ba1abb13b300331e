package pglocal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
)

// oldest is the oldest major version that Pawl works with.
const oldest = 15

// places are where packagers put the programs, beside the PATH.
var places = []string{
	"/usr/lib/postgresql/*/bin",                               // Debian, Ubuntu
	"/usr/pgsql-*/bin",                                        // Red Hat, PGDG
	"/opt/homebrew/opt/postgresql@*/bin",                      // Homebrew, arm64
	"/usr/local/opt/postgresql@*/bin",                         // Homebrew, x86
	"/Applications/Postgres.app/Contents/Versions/[0-9]*/bin", // Postgres.app
}

// programs is one installed PostgreSQL.
type programs struct {
	dir     string
	major   int
	version string // as the program tells it, packager's suffix included
}

func (p programs) path(name string) string { return filepath.Join(p.dir, name) }

// findPrograms returns the programs to use. major is that of existing data and
// 0 if there is none: data can only be opened by the version that made it.
func findPrograms(ctx context.Context, o Options, a account, major int) (programs, error) {
	bin := o.Bin
	if bin == "" {
		bin = os.Getenv("PAWL_PG_BIN")
	}
	if bin != "" {
		// Somebody chose: no silent fall-back to another version.
		p, err := probe(ctx, bin, a)
		switch {
		case err != nil:
			return p, fmt.Errorf("pglocal: no usable PostgreSQL in %s: %w", bin, err)
		case p.major < oldest:
			return p, fmt.Errorf("pglocal: %s holds PostgreSQL %d, but %d or newer is needed", bin, p.major, oldest)
		case major != 0 && p.major != major:
			return p, fmt.Errorf("pglocal: the data was made by PostgreSQL %d and %s holds %d", major, bin, p.major)
		}
		return p, nil
	}
	for _, p := range installed(ctx, a) {
		if p.major >= oldest && (major == 0 || p.major == major) {
			return p, nil
		}
	}
	var why error
	if o.NoDownload {
		why = errors.New("downloading is turned off")
	} else {
		p, err := download(ctx, a, major)
		if err == nil {
			return p, nil
		}
		why = err
	}
	want := fmt.Sprintf("%d or newer", oldest)
	if major != 0 {
		want = strconv.Itoa(major)
	}
	return programs{}, fmt.Errorf("pglocal: found no PostgreSQL %s; install one (Debian: apt-get install postgresql; "+
		"macOS: brew install postgresql@18), or set PAWL_PG_BIN to the directory of its programs: %w", want, why)
}

// installed lists what the machine has, newest major version first.
func installed(ctx context.Context, a account) []programs {
	var dirs []string
	if path, err := exec.LookPath("postgres"); err == nil {
		// Often a link into the directory that holds initdb as well.
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
		dirs = append(dirs, filepath.Dir(path))
	}
	for _, pattern := range places {
		found, _ := filepath.Glob(pattern)
		dirs = append(dirs, found...)
	}
	var all []programs
	seen := map[string]bool{}
	for _, dir := range dirs {
		if seen[dir] {
			continue
		}
		seen[dir] = true
		if p, err := probe(ctx, dir, a); err == nil {
			all = append(all, p)
		}
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].major > all[j].major })
	return all
}

var versionPattern = regexp.MustCompile(`PostgreSQL\) (\d+)`)

// probe asks the program for its version, as the account that will run it, so
// that a directory closed to the account counts as no PostgreSQL at all.
func probe(ctx context.Context, dir string, a account) (programs, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return programs{}, err
	}
	p := programs{dir: dir}
	if _, err := os.Stat(p.path("initdb")); err != nil {
		return p, err
	}
	cmd := exec.CommandContext(ctx, p.path("postgres"), "--version")
	cmd.Dir = "/"
	cmd.Env = environment()
	detach(cmd, a)
	out, err := cmd.CombinedOutput()
	if err != nil {
		if a.switched && !a.reaches(dir) {
			return p, fmt.Errorf("user %s, which runs the server because root can't, may not enter that directory", a.name)
		}
		return p, fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	p.version = strings.TrimSpace(string(out))
	m := versionPattern.FindStringSubmatch(p.version)
	if m == nil {
		return p, fmt.Errorf("its version is unreadable: %q", p.version)
	}
	p.major, err = strconv.Atoi(m[1])
	return p, err
}

// environment is ours without what would change the server's behaviour. The
// messages must be English, since one of them is looked for (bindFailed).
func environment() []string {
	env := []string{"LC_ALL=C"}
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "PG") && !strings.HasPrefix(kv, "LC_") && !strings.HasPrefix(kv, "LANG") {
			env = append(env, kv)
		}
	}
	return env
}
