package engine_test

import (
	"testing"
	"time"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// What is seen of an error that does not pass: the history is not there.
// (No assertion but that all ends well afterwards; run with -v.)
func TestFaultPermanentError(t *testing.T) {
	t.Parallel()
	pool := effPool(t, pgtest.Database(t))
	log := &envLog{}
	w := steps.Declare[int, int]("plain")
	e := effEngine(t, pool, engine.Config{Logger: log.logger(), Session: 3 * time.Second, Workflows: []steps.Definition{w.Of(steps.New("p", same))}})
	work(t, e)
	effSuccess(t, e, effStart(t, e, w, 1))
	effExec(t, pool, "ALTER TABLE pawl.history RENAME TO history_away")
	r := effStart(t, e, w, 1)
	time.Sleep(12 * time.Second)
	t.Logf("%d warnings in 12 s:\n%s", log.said("trying again"), log.last(4))
	t.Log(effScan[string](t, pool, "SELECT state || ' ' || attempt FROM pawl.job"))
	effExec(t, pool, "ALTER TABLE pawl.history_away RENAME TO history")
	effSuccess(t, e, r)
}
