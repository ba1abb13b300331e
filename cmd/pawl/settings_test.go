package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/view"
	"github.com/pawlworks/pawl/steps"
)

func TestSettings(t *testing.T) {
	t.Parallel()
	p := plant(t)
	p.says(p.reads(exitOK, "settings"), "order: definition", "0 charge (plain)", "effect none declared: the body may run more than once*", "owner payments queue default*",
		"lease 1m*, renewed every 20s*, max runtime 15m*", "retry 25* times, within 1d*; delays up to 1s* at first, 10m* at last",
		`effect looked up when unknown; "never happened" counts after 15m questions 100* times`, "max runtime 2m", "retry 8 times, within 1d*",
		"manual: when unknown, a person says", "* a default.")
	p.engine(engine.Config{Workflows: []steps.Definition{orders.Of(steps.New("bill", body, steps.Formerly("charge"), steps.Idempotent(steps.Forever), steps.Retry{Within: steps.Forever}))}})
	out := p.reads(exitOK, "settings", "-workflow", "order")
	p.says(out, "0 bill (plain)", "idempotent: sent again with the same key within ever", "formerly charge", "25* times, without a limit of time;")
	if strings.Contains(out, "0 charge") {
		t.Errorf("an older graph:\n%s", out)
	}
	p.says(p.reads(exitOK, "settings", "-all", "-workflow", "order"), "an older graph", "0 charge", "0 bill")
	lines := 0
	for line := range strings.Lines(p.reads(exitOK, "settings", "-json")) {
		var s view.Setting
		if err := json.Unmarshal([]byte(line), &s); err != nil || !s.Stored || s.LeaseMs == 0 || s.Step == "" || s.Given == nil {
			t.Errorf("%v: %s", err, line)
		}
		lines++
	}
	if lines != 3 {
		t.Errorf("%d lines", lines)
	}
	p.says(p.reads(exitFailed, "settings", "-workflow", "nothing"), "no process that has workflow")
	p.exec("UPDATE pawl.definition SET settings = '[]', graph = 'x' WHERE workflow = 'mail'")
	p.exec("UPDATE pawl.definition SET settings = '{}' WHERE workflow = 'order'")
	p.says(p.reads(exitOK, "settings"), "its settings are not known")
}
