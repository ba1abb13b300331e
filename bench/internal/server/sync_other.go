//go:build !linux

package server

import "os"

func datasync(f *os.File) error { return f.Sync() }
