package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/view"
)

func (p *planted) show(name string, args ...string) (v view.Run) {
	p.t.Helper()
	if err := json.Unmarshal([]byte(p.reads(exitOK, "show", append(args, "-json", name)...)), &v); err != nil {
		p.t.Fatal(err)
	}
	return v
}

func TestShow(t *testing.T) {
	t.Parallel()
	p := plant(t)
	p.trouble()
	p.says(p.reads(exitOK, "show", "order-1"), "run "+p.runs["declined"]+" of order", "key order-1", "state failed at charge, DECLINED",
		"next payments: mend the cause, then engine.Replay, or engine.Cancel", "tags vip, eu", "AT charge: dead, attempt 1, queue default",
		"dead charge #1, took", "permanent DECLINED the bank says no", "input 10 bytes (-payloads shows it)")
	p.says(p.reads(exitOK, "show", p.runs["provider down"]), "next attempt 2 (1 of 25 transient failures), in", "so far transient failures: 1", "failing since", "retried charge #1")
	p.says(p.reads(exitOK, "show", "mail-1"), "state uncertain at send, UNKNOWN", "next postmaster: a person says what became of it: the step is Manual (engine.Resolve)",
		"unknown since", "effect key ", "to look for at the other side; first attempt", "uncertain send #1")
	p.says(p.reads(exitOK, "show", p.runs["asked"]), "next its look-up asks what became of the effect, in", "so far questions: 1", "asking transfer #1", "unknown transfer #1")
	p.says(p.reads(exitOK, "show", "order-2"), `declined\x1b]0;owned\x07 by\u202ethe bank`, `\nWELL\x9b31m`)
	if v := p.show("order-2"); v.Timeline[0].Reason != evilText || v.State != "failed" || v.Next == "" || v.Jobs[0].State != "dead" || v.Input != nil {
		t.Errorf("%+v", v)
	}
	if v := p.show(p.runs["lost"]); len(v.Jobs[0].EffectKey) != 64 || v.Jobs[0].EffectAt.IsZero() || v.Jobs[0].Uncertain.IsZero() || !v.NextAt.IsZero() {
		t.Errorf("%+v", v)
	}
	// Payloads only if they are asked for.
	for _, args := range [][]string{{"order-4"}, {"-json", "order-4"}} {
		if out := p.reads(exitOK, "show", args...); strings.Contains(out, "fine") {
			t.Errorf("%v shows a payload:\n%s", args, out)
		}
	}
	p.says(p.reads(exitOK, "show", "order-4", "-payloads"), `input "fine"`, `output "done: fine"`, `result "done: fine"`, "next nothing: it has ended")
	p.exec(`UPDATE pawl.run SET input = '\xff1b5b' WHERE id = $1`, p.runs["fine"])
	p.says(p.reads(exitOK, "show", "-payloads", "order-4"), `input {"not_json":"\\xff\\x1b["}`)
	if v := p.show("order-4", "-payloads"); string(v.Result) != `"done: fine"` || v.Timeline[0].Size == 0 || v.InputSize != 3 {
		t.Errorf("%+v", v)
	}
	p.says(p.reads(exitFailed, "show", "nothing of the kind"), `no run has the id or the key "nothing of the kind"`)
	p.says(p.reads(exitFailed, "show", "01a22f7b-0000-7000-8000-000000000000"), "no run has the id or the key")
	p.says(p.reads(exitUsage, "show"), "which? give a run's id or a key", "usage: pawl show")
	// A key that workflows share.
	p.start(mails, "another", engine.Key("order-1"))
	p.says(p.reads(exitFailed, "show", "order-1"), "several workflows: name one with -workflow", "mail "+p.runs["another"], "order "+p.runs["declined"])
	p.says(p.reads(exitOK, "show", "-workflow", "order", "order-1"), "run "+p.runs["declined"])
}

// TestShowPeople: what people did, and what came late.
func TestShowPeople(t *testing.T) {
	t.Parallel()
	p := plant(t)
	p.trouble()
	by := engine.By{Actor: "ada\x1b[1m", Reason: "asked\nthe bank"}
	id := p.start(orders, "never", engine.Key(evilKey))
	if err := p.e.Cancel(context.Background(), id, by); err != nil {
		t.Fatal(err)
	}
	p.says(p.reads(exitOK, "show", evilKey), `cancel asked for by ada\x1b[1m: asked\nthe bank`, "state cancelled", `key\x1b[31m\u202e of evil`, "cancel: ada")
	if err := p.e.Resolve(context.Background(), p.runs["lost"], by, engine.ItNeverHappened("letter 7")); err != nil {
		t.Fatal(err)
	}
	p.exec(`INSERT INTO pawl.evidence (shard, run_id, job, token, attempt, node, path, owner, came_at, encoding, output)
		SELECT shard, run_id, id, token, 1, 0, '', gen_random_uuid(), now(), 'json', '"late"' FROM pawl.job WHERE run_id = $1`, p.runs["lost"])
	p.says(p.reads(exitOK, "show", "mail-1", "-payloads"), `resolved send #1, ada\x1b[1m`, `asked\nthe bank`, "evidence: letter 7", "LATE RESULTS", `output "late"`)
	if v := p.show("mail-1"); len(v.Late) != 1 || v.Late[0].Output != nil || v.Timeline[1].Evidence != "letter 7" || v.Timeline[1].Actor != by.Actor {
		t.Errorf("%+v", v)
	}
	if v := p.show(id); len(v.Acts) != 1 || v.Acts[0].Reason != by.Reason || v.CancelledBy != by.Actor {
		t.Errorf("%+v", v)
	}
}
