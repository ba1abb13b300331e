package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/schema"
)

func TestMigrate(t *testing.T) {
	t.Parallel()
	url := pgtest.Blank(t)
	want := fmt.Sprintf("migrate: the schema is at version %d\n", schema.Version)
	for range 2 {
		if code, out, errOut := pawl(t, "migrate", "-database", url); code != exitOK || out != want {
			t.Fatalf("exit code %d, %q, %q", code, out, errOut)
		}
	}
}

func TestMigrateByEnvironment(t *testing.T) {
	t.Setenv(databaseVariable, pgtest.Blank(t))
	if code, _, errOut := pawl(t, "migrate"); code != exitOK {
		t.Fatalf("exit code %d, %q", code, errOut)
	}
	if code, out, errOut := pawl(t, "doctor"); code != exitOK || out != "doctor: ok\n" {
		t.Errorf("exit code %d, %q, %q", code, out, errOut)
	}
}

// TestMigrateSQL does with the printed SQL what somebody does with psql.
func TestMigrateSQL(t *testing.T) {
	t.Parallel()
	url := pgtest.Blank(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	code, out, errOut := pawl(t, "migrate", "-sql", "0", strconv.Itoa(schema.Version))
	if code != exitOK || errOut != "" {
		t.Fatalf("exit code %d, %q", code, errOut)
	}
	if _, err := conn.PgConn().Exec(t.Context(), out).ReadAll(); err != nil {
		t.Fatal(err)
	}
	if err := schema.Check(t.Context(), conn); err != nil {
		t.Error(err)
	}
	if code, out, errOut := pawl(t, "migrate", "-database", url); code != exitOK || !strings.Contains(out, "at version") {
		t.Errorf("afterwards: exit code %d, %q, %q", code, out, errOut)
	}
}
