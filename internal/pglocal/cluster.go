package pglocal

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// ourConf is included by postgresql.conf and written anew at every start. The
// settings are not given on the command line, where they would win over
// ALTER SYSTEM.
const ourConf = "pawl.conf"

// initialise fills an empty home. initdb takes more than a second and always
// does the same, so its result is cached and copied (a thousand files, 40 MB).
// The password is the cache's: random, and for one user only.
func (h *home) initialise(ctx context.Context, p programs, durable bool) error {
	if h.major() != 0 {
		return nil
	}
	cache := cacheDir(h.owner)
	sum := sha256.Sum256([]byte(p.dir + "\n" + p.version))
	template := filepath.Join(cache, fmt.Sprintf("cluster-%d-%s", p.major, hex.EncodeToString(sum[:6])))
	err := os.MkdirAll(cache, 0o755)
	if err != nil {
		return h.initdb(ctx, p) // no place for a cache
	}
	// One process runs initdb, the others wait for its result.
	lock, err := lockFile(template+".lock", true)
	if err != nil {
		return err
	}
	defer lock.Close()
	if _, err := os.Stat(template); err != nil {
		if err := h.initdb(ctx, p); err != nil {
			return err
		}
		return h.publish(template)
	}
	if err := lock.Close(); err != nil { // copying needs no lock
		return err
	}
	if err := h.copyFrom(template); err != nil {
		return fmt.Errorf("pglocal: copy %s: %w", template, err)
	}
	if durable {
		return h.run(ctx, p, "--sync-only", "-D", h.data)
	}
	return nil
}

// initdb makes a cluster as the account, in a directory that it owns. As in
// copyFrom the data's directory appears last.
func (h *home) initdb(ctx context.Context, p programs) error {
	half := h.data + ".new"
	if err := errors.Join(os.RemoveAll(half), os.Mkdir(half, 0o700)); err != nil {
		return err
	}
	password := h.passwordFile()
	if err := os.WriteFile(password, []byte(rand.Text()), 0o600); err != nil {
		return err
	}
	if err := errors.Join(h.owner.own(half), h.owner.own(password)); err != nil {
		return err
	}
	args := []string{"-D", half, "-U", superuser, "--pwfile=" + password, "--auth=scram-sha-256",
		"--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"}
	if p.major >= 16 {
		// The password is random: hashing it thousands of times for every
		// connection would guard nothing.
		args = append(args, "--set=scram_iterations=1")
	}
	if err := h.run(ctx, p, args...); err != nil {
		return err
	}
	conf, err := os.OpenFile(filepath.Join(half, "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(conf, "\ninclude_if_exists = '%s'\n", ourConf)
	return errors.Join(err, conf.Close(), os.Rename(half, h.data))
}

func (h *home) run(ctx context.Context, p programs, args ...string) error {
	cmd := exec.CommandContext(ctx, p.path("initdb"), args...)
	cmd.Dir = filepath.Dir(h.data) // ours may be closed to the account
	cmd.Env = environment()
	detach(cmd, h.owner)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("pglocal: initdb: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// passwordFile lies beside the data, so that the account can read it.
func (h *home) passwordFile() string {
	return filepath.Join(filepath.Dir(h.data), "password")
}

// publish puts a copy of the new cluster into the cache, complete or not at
// all. A full disk must not fail a server that could start.
func (h *home) publish(template string) error {
	work, err := os.MkdirTemp(filepath.Dir(template), "new-")
	if err != nil {
		return nil
	}
	defer os.RemoveAll(work)
	us := account{}
	if copyTree(h.data, filepath.Join(work, "data"), us) == nil &&
		copyFile(h.passwordFile(), filepath.Join(work, "password"), 0o600, us) == nil {
		_ = os.Rename(work, template)
	}
	return nil
}

// copyFrom fills the home from the cache. The data's directory appears last
// (by rename), so that a start killed half-way leaves no half of a cluster.
func (h *home) copyFrom(template string) error {
	half := h.data + ".new"
	if err := os.RemoveAll(half); err != nil {
		return err
	}
	if err := copyTree(filepath.Join(template, "data"), half, h.owner); err != nil {
		return err
	}
	if err := copyFile(filepath.Join(template, "password"), h.passwordFile(), 0o600, h.owner); err != nil {
		return err
	}
	return os.Rename(half, h.data)
}

func copyTree(from, to string, a account) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(to, strings.TrimPrefix(path, from))
		if d.IsDir() {
			if err := os.Mkdir(target, 0o700); err != nil {
				return err
			}
			return a.own(target)
		}
		return copyFile(path, target, 0o600, a)
	})
}

func copyFile(from, to string, mode fs.FileMode, a account) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close(), a.own(to))
}
