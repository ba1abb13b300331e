//go:build !unix

package pglocal

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
)

// A server of our own needs process groups, flock and signals. Elsewhere
// PAWL_DATABASE_URL names a server.
const (
	sigStop     = syscall.Signal(0)
	sigCont     = syscall.Signal(0)
	unsupported = "pglocal: no server can be started on this system; set PAWL_DATABASE_URL"
)

var errLocked = errors.New(unsupported)

func lockFile(string, bool) (*os.File, error) { return nil, errors.New(unsupported) }
func detach(*exec.Cmd, account)               {}
func sendSignal(int, syscall.Signal) error    { return errors.New(unsupported) }
func alive(int) bool                          { return false }
func fileOwner(fs.FileInfo) (uid, gid int)    { return os.Geteuid(), os.Getegid() }
