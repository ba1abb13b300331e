//go:build unix

package pglocal

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
)

const (
	sigStop = syscall.SIGSTOP
	sigCont = syscall.SIGCONT
)

var errLocked = errors.New("locked by somebody else")

// lockFile opens and flocks a file. The lock goes with the descriptor, which
// no child inherits (Go opens close-on-exec).
func lockFile(path string, wait bool) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	how := syscall.LOCK_EX
	if !wait {
		how |= syscall.LOCK_NB
	}
	for {
		switch err = syscall.Flock(int(f.Fd()), how); err {
		case nil:
			return f, nil
		case syscall.EINTR:
			continue
		case syscall.EWOULDBLOCK:
			err = errLocked
		}
		return nil, errors.Join(err, f.Close())
	}
}

// detach runs the command as the account and in a session of its own.
func detach(cmd *exec.Cmd, a account) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if a.switched {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	}
}

func sendSignal(pid int, signal syscall.Signal) error { return syscall.Kill(pid, signal) }

func alive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || err == syscall.EPERM
}

// fileOwner returns the user and group of a file.
func fileOwner(info fs.FileInfo) (uid, gid int) {
	st := info.Sys().(*syscall.Stat_t)
	return int(st.Uid), int(st.Gid)
}
