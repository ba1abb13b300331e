package engine_test

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/internal/plan"
	"github.com/pawlworks/pawl/steps"
)

// TestStoredSettings: what a definition's steps are run with is in the database,
// and so is who runs them.
func TestStoredSettings(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	w := steps.Declare[int, int]("stored")
	same := func(_ context.Context, n int) (int, error) { return n, nil }
	def := w.Of(steps.New("ask", same, steps.Owner("payments"), steps.Formerly("demand"), steps.Retry{Attempts: 8}, steps.Queue("bank")).
		LookUp(func(context.Context, int) (steps.Verdict[int], error) { return steps.StillUnknown[int](0), nil }, 15*time.Minute))
	e := effEngine(t, pool, engine.Config{Workflows: []steps.Definition{def}, Name: "teller"})
	read := func() plan.Settings {
		return plan.ReadSettings([]byte(effScan[string](t, pool, "SELECT settings::text FROM pawl.definition WHERE workflow = 'stored'")))["ask"]
	}
	s := read()
	if s.Owner != "payments" || s.Queue != "bank" || s.Effect != plan.LookUp || s.LateMs != 900_000 || s.LeaseMs != 60_000 || s.HeartbeatMs != 20_000 ||
		s.MaxRuntimeMs != 900_000 || s.Retry != (plan.Budget{Attempts: 8, WithinMs: 86_400_000, DelayMs: 1000, MaxDelayMs: 600_000}) ||
		s.RetryUnknown.Attempts != 5 || s.Questions == nil || s.Questions.Attempts != 100 || len(s.Formerly) != 1 ||
		strings.Join(s.Given, " ") != "queue owner formerly retry.attempts effect" {
		t.Errorf("%+v", s)
	}
	// The code that started last rules, though the graph is the same.
	effEngine(t, pool, engine.Config{Workflows: []steps.Definition{w.Of(steps.New("ask", same))}})
	if s := read(); s.Owner != "" || s.Effect != plan.NoEffect || s.Questions != nil || len(s.Given) != 0 || s.Queue != "default" {
		t.Errorf("afterwards %+v", s)
	}
	work(t, e)
	effUntil(t, "a session", func() bool { return effScan[int](t, pool, "SELECT count(*) FROM pawl.session") == 1 })
	host, _ := os.Hostname()
	if got := effScan[string](t, pool, "SELECT concat_ws('|', name, host, pid, build <> '', pawl <> '') FROM pawl.session"); got != "teller|"+host+"|"+strconv.Itoa(os.Getpid())+"|t|t" {
		t.Errorf("the session says %s", got)
	}
}
