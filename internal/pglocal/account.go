package pglocal

import (
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
)

// account is the user as which the server runs. PostgreSQL refuses to run as
// root, so root lends it another account; everybody else runs it as himself.
type account struct {
	name     string
	uid, gid int
	switched bool // differs from the process's own user
}

func serverAccount() account {
	self := account{uid: os.Geteuid(), gid: os.Getegid()}
	if self.uid != 0 {
		return self
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.Atoi(u.Uid)
		gid, err2 := strconv.Atoi(u.Gid)
		if err1 == nil && err2 == nil && uid > 0 {
			return account{name: name, uid: uid, gid: gid, switched: true}
		}
	}
	return account{name: "65534", uid: 65534, gid: 65534, switched: true}
}

// own hands a file over to the account.
func (a account) own(path string) error {
	if !a.switched {
		return nil
	}
	return os.Lchown(path, a.uid, a.gid)
}

// reaches tells whether the account may enter dir: root's own directories are
// often closed to it. Directories that don't exist yet will be made open.
func (a account) reaches(dir string) bool {
	if !a.switched {
		return true
	}
	for {
		info, err := os.Stat(dir)
		if err == nil && !a.enters(info) {
			return false
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return true
		}
		dir = parent
	}
}

func (a account) enters(info fs.FileInfo) bool {
	uid, gid := fileOwner(info)
	mode := info.Mode().Perm()
	switch {
	case uid == a.uid:
		return mode&0o100 != 0
	case gid == a.gid:
		return mode&0o010 != 0
	default:
		return mode&0o001 != 0
	}
}

func ownedByUs(info fs.FileInfo) bool {
	uid, _ := fileOwner(info)
	return uid == os.Geteuid()
}
