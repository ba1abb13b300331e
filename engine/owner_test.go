package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// TestOwner: who must look is named wherever a person looks: in the error, in
// the run, in the list and in the log; by a process without the code as well.
func TestOwner(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	log := &envLog{}
	broken, lost := steps.Declare[int, int]("broken"), steps.Declare[int, int]("lost")
	e := effEngine(t, pool, engine.Config{Logger: log.logger(), Workflows: []steps.Definition{
		broken.Of(steps.New("break", func(context.Context, int) (int, error) {
			return 0, steps.Permanent("BROKEN", errors.New("broken"))
		}, steps.Owner("the menders"))),
		lost.Of(steps.New("lose", func(context.Context, int) (int, error) {
			return 0, errors.New("no answer")
		}, steps.Manual(), steps.Owner("the finders"))),
	}})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Work(ctx) }()
	defer func() { stop(); <-done }()
	reader := effEngine(t, pool, engine.Config{})
	b, l := effStart(t, e, broken, 1), effStart(t, e, lost, 1)
	var failed *engine.FailedError
	if _, err := effResult(t, e, b); !errors.As(err, &failed) || failed.Owner != "the menders" || !strings.Contains(err.Error(), "the menders must see it") {
		t.Errorf("%v", err)
	}
	if i := effState(t, reader, b.ID, engine.Failed); i.Owner != "the menders" {
		t.Errorf("the dead run's owner is %q", i.Owner)
	}
	if i := effState(t, reader, l.ID, engine.Uncertain); i.Owner != "the finders" {
		t.Errorf("the uncertain run's owner is %q", i.Owner)
	}
	all, err := reader.List(t.Context(), engine.Filter{})
	if err != nil || len(all) != 2 || all[0].Owner != "the finders" || all[1].Owner != "the menders" {
		t.Errorf("%+v, %v", all, err)
	}
	for _, said := range []string{"owner=the menders", "owner=the finders"} {
		if log.said(said) == 0 {
			t.Errorf("the log does not say %s:\n%s", said, log.last(20))
		}
	}
}
