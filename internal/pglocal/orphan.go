package pglocal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// sweep ends the servers and removes the homes of owners that died. A home
// whose lock we get has no owner: the kernel frees the lock with the process.
func sweep(base string) error {
	dead, err := deadHomes(base)
	if err != nil {
		return err
	}
	var errs []error
	for _, h := range dead {
		// A throw-away server needs no checkpoint: immediate shutdown.
		if err := h.endOrphan(syscall.SIGQUIT); err != nil {
			errs = append(errs, err, h.lock.Close())
			continue
		}
		errs = append(errs, h.release(nil))
	}
	return errors.Join(errs...)
}

// deadHomes takes the locks of all homes without an owner. The base's lock is
// held only this long, so that ending a server blocks nobody's start.
func deadHomes(base string) ([]*home, error) {
	guard, err := lockFile(filepath.Join(base, "lock"), true)
	if err != nil {
		return nil, err
	}
	defer guard.Close()
	dirs, err := filepath.Glob(filepath.Join(base, "home-*"))
	if err != nil {
		return nil, err
	}
	var dead []*home
	for _, dir := range dirs {
		f, err := lockFile(filepath.Join(dir, "lock"), false)
		if err != nil {
			continue // has an owner, or its supervising shell is removing it
		}
		dead = append(dead, &home{dir: dir, data: filepath.Join(dir, "data"), lock: f})
	}
	return dead, nil
}

// endOrphan ends the server that a dead owner left on this data. The caller
// holds the home's lock.
func (h *home) endOrphan(signal syscall.Signal) error {
	pidFile := filepath.Join(h.data, "postmaster.pid")
	pid := readPid(pidFile)
	if pid <= 1 || !alive(pid) {
		return nil
	}
	if !serves(pid, h.data) {
		// The number went to somebody else, whom PostgreSQL would take for
		// a running postmaster.
		if err := os.Remove(pidFile); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	}
	// It is not our child, so its end can't be waited for, only looked at.
	for _, step := range []struct {
		signal syscall.Signal
		wait   time.Duration
	}{{signal, 20 * time.Second}, {syscall.SIGQUIT, 5 * time.Second}, {syscall.SIGKILL, 5 * time.Second}} {
		if step.signal == syscall.SIGKILL {
			killTree(pid)
		} else {
			_ = sendSignal(pid, step.signal)
			_ = sendSignal(pid, sigCont)
		}
		for end := time.Now().Add(step.wait); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if !serves(pid, h.data) {
				return nil
			}
		}
	}
	return fmt.Errorf("pglocal: the server with process id %d on %s can't be ended", pid, h.data)
}

// serves tells whether the process is a postmaster on that data directory:
// we start it with the directory as its last argument.
func serves(pid int, data string) bool {
	line := commandLine(pid)
	return strings.Contains(line, "postgres") && strings.HasSuffix(line, " -D "+data)
}
