package pglocal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// home is a server's directory:
//
//	lock      held with flock by the owner; holds the owner's process id
//	password  the superuser's
//	data      the data directory, owned by the server's account
type home struct {
	dir   string
	data  string
	keep  bool
	lock  *os.File
	owner account
}

// baseDir holds the throw-away homes of one user. The temp dir is shared by
// everybody, so a directory that somebody else made there is refused.
func baseDir(a account) (string, error) {
	temp := os.TempDir()
	if !a.reaches(temp) {
		temp = "/tmp" // root's own TMPDIR; the server's account can't enter it
	}
	temp, err := filepath.EvalSymlinks(temp)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(temp, "pawl-pg-"+strconv.Itoa(os.Geteuid()))
	if err := os.Mkdir(dir, 0o711); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	if !info.IsDir() || !ownedByUs(info) || info.Mode().Perm()&0o022 != 0 {
		return "", fmt.Errorf("pglocal: %s is not a directory of ours; remove it", dir)
	}
	return dir, os.Chmod(dir, 0o711)
}

// cacheDir holds what is made once: initialised clusters and downloads.
func cacheDir(a account) string {
	dir, err := os.UserCacheDir()
	if err == nil && a.reaches(dir) && os.MkdirAll(dir, 0o755) == nil {
		return filepath.Join(dir, "pawl")
	}
	if a.switched {
		return "/var/cache/pawl" // root with a closed home
	}
	base, err := baseDir(a)
	if err != nil {
		return filepath.Join(os.TempDir(), "pawl-pg-cache")
	}
	return filepath.Join(base, "cache")
}

// throwAway makes a new home. Making and locking happen under the base's lock,
// so that a sweep never sees a home that is not locked yet.
func throwAway(base string, a account) (*home, error) {
	guard, err := lockFile(filepath.Join(base, "lock"), true)
	if err != nil {
		return nil, err
	}
	defer guard.Close()
	dir, err := os.MkdirTemp(base, "home-")
	if err != nil {
		return nil, err
	}
	h := &home{dir: dir, data: filepath.Join(dir, "data"), owner: a}
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, err
	}
	return h, h.acquire()
}

// keptHome opens the user's directory. If the server's account can't enter it
// (root's directories are often closed), the data lies in /var/lib/pawl and
// "data" is a link to it.
func keptHome(dir string, a account) (*home, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, err
	}
	h := &home{dir: dir, data: filepath.Join(dir, "data"), keep: true, owner: a}
	if err := h.acquire(); err != nil {
		return nil, err
	}
	if _, err := os.Lstat(h.data); errors.Is(err, os.ErrNotExist) && !a.reaches(dir) {
		if err := os.MkdirAll("/var/lib/pawl", 0o755); err != nil {
			return nil, h.release(err)
		}
		away, err := os.MkdirTemp("/var/lib/pawl", "data-")
		if err == nil {
			err = errors.Join(os.Chmod(away, 0o755), os.Symlink(filepath.Join(away, "data"), h.data))
		}
		if err != nil {
			return nil, h.release(err)
		}
	}
	if link, err := os.Readlink(h.data); err == nil {
		h.data = link
	}
	return h, nil
}

// acquire takes the lock and leaves our process id for those who come later.
func (h *home) acquire() error {
	path := filepath.Join(h.dir, "lock")
	f, err := lockFile(path, false)
	if errors.Is(err, errLocked) {
		holder := "another process"
		if pid := readPid(path); pid != 0 {
			holder = "process " + strconv.Itoa(pid)
		}
		return fmt.Errorf("pglocal: %s is in use by %s; one process at a time may keep its data there", h.dir, holder)
	}
	if err != nil {
		return err
	}
	h.lock = f
	if err := f.Truncate(0); err != nil {
		return h.release(err)
	}
	if _, err := f.WriteString(strconv.Itoa(os.Getpid()) + "\n"); err != nil {
		return h.release(err)
	}
	return nil
}

// release lets go of the home, removes it if nothing is to be kept, and hands
// back err for the caller's return.
func (h *home) release(err error) error {
	if !h.keep {
		err = errors.Join(err, os.RemoveAll(h.dir))
	}
	return errors.Join(err, h.lock.Close())
}

// major is the version that made the data, 0 if there is none.
func (h *home) major() int {
	text, err := os.ReadFile(filepath.Join(h.data, "PG_VERSION"))
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return n
}

func readPid(path string) int {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, _ := strconv.Atoi(strings.TrimSpace(first))
	return pid
}
