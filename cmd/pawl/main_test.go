package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/pawlworks/pawl/internal/pgtest"
)

// The test binary is its own pawl command: with this variable set.
const mainVariable = "PAWL_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(mainVariable) != "" {
		main()
		return
	}
	_ = os.Unsetenv(databaseVariable) // the tests say which database
	os.Exit(pgtest.Main(m))
}

// pawl runs a command line in this process.
func pawl(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = run(t.Context(), args, &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args string
		code int
		out  string // of standard output where the code is 0, else of standard error
	}{
		{"", exitUsage, "usage: pawl COMMAND"},
		{"help", exitOK, "pawl migrate"},
		{"-h", exitOK, "pawl doctor"},
		{"nothing", exitUsage, `no command "nothing"`},
		{"demo -h", exitOK, "-headless"},
		{"demo now", exitUsage, `"now" is not understood`},
		{"demo -quick", exitUsage, "-quick"},
		{"migrate", exitUsage, "give -database URL or set PAWL_DATABASE_URL"},
		{"migrate up", exitUsage, `"up" is not understood`},
		{"migrate -sql", exitUsage, "two versions"},
		{"migrate -sql 0 many", exitUsage, "TO:"},
		{"migrate -sql 7 3", exitUsage, "not from 7 to 3"},
		{"migrate -database nonsense://", exitUsage, "nonsense"},
		{"migrate -database postgres://127.0.0.1:1/none", exitFailed, "connecting"},
		{"doctor", exitUsage, "give -database URL or set PAWL_DATABASE_URL"},
		{"doctor all", exitUsage, `"all" is not understood`},
		{"doctor -h", exitOK, "-database URL"},
		{"doctor -database postgres://127.0.0.1:1/none", exitFailed, "connecting"},
	} {
		t.Run(test.args, func(t *testing.T) {
			t.Parallel()
			code, out, errOut := pawl(t, strings.Fields(test.args)...)
			told, silent := errOut, out
			if code == exitOK {
				told, silent = out, errOut
			}
			if code != test.code || !strings.Contains(told, test.out) || silent != "" {
				t.Errorf("exit code %d, want %d\nstdout: %s\nstderr: %s", code, test.code, out, errOut)
			}
			if (code == exitUsage) != strings.Contains(errOut, "usage:") {
				t.Errorf("a usage is for those who were not understood:\n%s", errOut)
			}
		})
	}
}
