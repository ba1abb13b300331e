//go:build unix

package pglocal

import (
	"archive/zip"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// fakePrograms makes a directory that looks like a PostgreSQL.
func fakePrograms(t *testing.T, dir, version string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\necho 'postgres (PostgreSQL) " + version + "'\n"
	for _, name := range []string{"postgres", "initdb", "pg_ctl"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// reachableDir is a temporary directory that the server's account may enter.
func reachableDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pawl-pglocal-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestNewestIsFound(t *testing.T) {
	root := reachableDir(t)
	for _, version := range []string{"9.6.24", "14.2", "16.9 (Debian 16.9-1)", "19beta1", "17.1"} {
		major, _, _ := strings.Cut(version, ".")
		fakePrograms(t, filepath.Join(root, major, "bin"), version)
	}
	defer func(old []string) { places = old }(places)
	places = []string{filepath.Join(root, "*", "bin")}
	t.Setenv("PATH", "/usr/bin:/bin")
	t.Setenv("PAWL_PG_BIN", "")
	a := serverAccount()
	for _, want := range []int{19, 16, 17} {
		major := want
		if want == 19 {
			major = 0 // any
		}
		if p, err := findPrograms(t.Context(), Options{NoDownload: true}, a, major); err != nil || p.major != want {
			t.Errorf("wanted %d, got %d, %v", want, p.major, err)
		}
	}
	for _, major := range []int{14, 20} {
		if _, err := findPrograms(t.Context(), Options{NoDownload: true}, a, major); err == nil ||
			!strings.Contains(err.Error(), "PAWL_PG_BIN") {
			t.Errorf("for data of %d: %v", major, err)
		}
	}
	t.Setenv("PAWL_PG_BIN", filepath.Join(root, "14", "bin"))
	if _, err := findPrograms(t.Context(), Options{}, a, 0); err == nil || !strings.Contains(err.Error(), "15 or newer") {
		t.Errorf("an old version that was asked for: %v", err)
	}
}

// TestDownload has the library fetch a fake build from a fake repository: it
// must unpack it and start nothing.
func TestDownload(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("runs as an ordinary user, from TestOrdinaryUser; root's cache is the machine's")
	}
	if _, err := exec.LookPath("xz"); err != nil {
		t.Skip(err)
	}
	tree := t.TempDir()
	fakePrograms(t, filepath.Join(tree, "bin"), "18.3")
	archive := filepath.Join(t.TempDir(), "postgres.txz")
	if out, err := exec.Command("tar", "-C", tree, "-cJf", archive, "bin").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	jar := filepath.Join(t.TempDir(), "postgres.jar")
	zipFile(t, jar, archive)
	text, err := os.ReadFile(jar)
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int32
	repository := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, ".sha256") {
			sum := sha256.Sum256(text)
			_, _ = w.Write([]byte(hex.EncodeToString(sum[:])))
			return
		}
		asked.Add(1)
		_, _ = w.Write(text)
	}))
	defer repository.Close()
	t.Setenv("PAWL_PG_REPOSITORY", repository.URL)
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", t.TempDir())

	a := serverAccount()
	for range 2 {
		p, err := download(t.Context(), a, 0)
		if err != nil || p.major != 18 {
			t.Fatalf("%+v, %v", p, err)
		}
	}
	if asked.Load() != 1 {
		t.Errorf("fetched %d times", asked.Load())
	}
	left, _ := filepath.Glob(filepath.Join(cacheDir(a), "fetch-*"))
	if len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	repository.Close()
	if _, err := download(t.Context(), a, 16); err == nil {
		t.Error("a download from nowhere")
	}
}

func zipFile(t *testing.T, to, from string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(f)
	w, err := z.Create(filepath.Base(from))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
