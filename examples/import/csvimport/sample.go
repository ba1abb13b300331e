package csvimport

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// sampleGzip is a real public table of 32,530 rows: see sample/README.md.
//
//go:embed sample/oui.csv.gz
var sampleGzip []byte

// sampleTime is when the package that the sample comes from was made. A fixed
// time, so that the sample unpacked again is the same file to a run that waits for it.
var sampleTime = time.Date(2022, time.August, 27, 0, 0, 0, 0, time.UTC)

// Sample unpacks the sample and returns its path: always the same one, so
// that a run which was started before a crash finds its file.
func Sample() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = filepath.Join(os.TempDir(), "pawl-"+strconv.Itoa(os.Geteuid()))
	}
	dir = filepath.Join(dir, "pawl", "sample")
	text, err := unpack(sampleGzip)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "oui.csv")
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, text) {
		return path, os.Chtimes(path, sampleTime, sampleTime)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	return path, place(path, text)
}

func unpack(packed []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// place writes the file and lets it appear whole: another process may look for it.
func place(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "new-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // nothing is there when all went well
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Chtimes(f.Name(), sampleTime, sampleTime); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
