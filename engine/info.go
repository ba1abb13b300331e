package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/pawlworks/pawl/internal/db"
)

// State of a run: derived from its jobs while it lives, in this order.
type State string

// The states of a run. Stranded is no state but can be asked for in a Filter:
// due, and no live worker knows the step.
const (
	Cancelling State = "cancelling"
	Dead       State = "dead" // a step is dead, others still move (not yet: a sequence is Failed)
	Uncertain  State = "uncertain"
	Running    State = "running"   // or due
	Waiting    State = "waiting"   // not yet
	Scheduled  State = "scheduled" // due later: started so, or a retry
	Succeeded  State = "succeeded"
	Failed     State = "failed" // dead, and nothing of it can move; Replay opens it again
	Undone     State = "undone" // not yet
	Cancelled  State = "cancelled"
	Stranded   State = "stranded"
)

// RunInfo is what is known of a run.
type RunInfo struct {
	ID, Workflow string
	Key          string
	State        State
	Priority     Priority
	Tags         []string
	CreatedAt    time.Time
	EndedAt      time.Time // zero while it lives
	Step         string    // where it stands, or died
	Owner        string    // who must look when that is dead or uncertain: steps.Owner
	Code         string    // of the last error there
	DueAt        time.Time // of what waits; zero if nothing does

	// Get alone fills these in.
	Input       []byte
	CancelledBy string
	Reason      string
	TraceParent string
	Jobs        []JobInfo
	History     []Transition
	Evidence    []Evidence
}

// JobInfo is a live position of a run.
type JobInfo struct {
	ID             int64
	Step           string
	State          string // pending, running, waiting, uncertain, dead
	Attempt        int
	Token          int64
	DueAt          time.Time // of what waits; zero: under way, or a person must act
	ExpiresAt      time.Time // of the lease; zero if there is none
	UncertainAt    time.Time
	Code           string
	Done, Total    int64 // progress of a long step
	Stranded       bool  // due, and no live worker knows the step
	Questions      int   // asked about an uncertain effect
	Lapses         int   // leases that expired since the cursor moved
	IdempotencyKey string

	later bool // pending, and due in the future
}

// Transition is a row of a run's history: how one attempt, or one wait, ended.
type Transition struct {
	Job, Token int64
	Step       string // "result": where the run's result is made
	From, To   string // pending, running, waiting, uncertain, dead; To also gone: the job ended with its run
	// Event is completed, retried, snoozed, handed_back, lapsed, uncertain, dead,
	// cancelled; of a question asking, unknown, settled, repeat; of a person's act
	// resolved, replayed.
	Event        string
	Writer       string // worker, recovery, reconciler, person
	Actor        string // the person, or the program that acted for one
	Attempt      int
	Owner        string    // a worker's session: whose lease it closed
	GrantedAt    time.Time // that lease; zero if there was none
	EndedAt      time.Time
	Class        string // a steps.Class; empty if there was no error
	Code, Reason string // of the error, or of the act
	EvidenceText string // of a person's resolution
	Output       []byte // JSON; of a replay: the corrected input
}

// Evidence is what came after its lease was lost.
type Evidence struct {
	Step                string
	Attempt             int
	At                  time.Time
	Output              []byte
	Class, Code, Reason string
}

// Get returns all about a run: its jobs, its whole history, its evidence.
// ErrNotFound if there is no such run.
func (e *Engine) Get(ctx context.Context, id string) (RunInfo, error) {
	u, err := e.parse(id)
	if err != nil {
		return RunInfo{}, err
	}
	r, err := e.db.GetRun(ctx, db.GetRunParams{Shard: shardIn(u), ID: u})
	if errors.Is(err, pgx.ErrNoRows) {
		return RunInfo{}, fmt.Errorf("%w: run %s", ErrNotFound, id)
	} else if err != nil {
		return RunInfo{}, fmt.Errorf("pawl: reading run %s: %w", id, err)
	}
	g, err := decodeGraph(r.Graph)
	if err != nil {
		return RunInfo{}, fmt.Errorf("pawl: reading run %s: %w", id, err)
	}
	info := RunInfo{ID: u.String(), Workflow: r.Workflow, Key: text(r.Key), Priority: Priority(r.Priority), Tags: r.Tags, CreatedAt: r.CreatedAt,
		EndedAt: moment0(r.EndedAt), Input: r.Input, CancelledBy: text(r.CancelledBy), Reason: text(r.CancelReason), TraceParent: r.Traceparent}
	if err := e.jobs(ctx, u, g, &info); err != nil {
		return RunInfo{}, fmt.Errorf("pawl: reading run %s: %w", id, err)
	}
	info.Owner = ownerOf(r.Settings, info.Step)
	info.State = stateOf(r, info.Jobs)
	if err := e.history(ctx, u, g, &info); err != nil {
		return RunInfo{}, fmt.Errorf("pawl: reading the history of run %s: %w", id, err)
	}
	return info, nil
}

func (e *Engine) jobs(ctx context.Context, id uuid.UUID, g graph, info *RunInfo) error {
	rows, err := e.db.JobsOfRun(ctx, db.JobsOfRunParams{Shard: shardIn(id), RunID: id})
	if err != nil {
		return err
	}
	for _, j := range rows {
		i := JobInfo{ID: j.ID, Step: g.name(int(j.Node)), State: j.State, Attempt: int(j.Attempt), Token: j.Token, ExpiresAt: moment0(j.ExpiresAt),
			UncertainAt: moment0(j.UncertainAt), Code: text(j.Code), Stranded: j.Stranded, Questions: int(j.Questions), Lapses: int(j.Lapses)}
		i.later = j.State == statePending && j.DueAt.After(j.Now)
		if (j.State == statePending || j.State == stateRunning) && j.Mode == modeAsk { // while it is asked about
			i.State = stateUncertain
		}
		if j.State == statePending || j.State == stateUncertain {
			i.DueAt = soon(j.DueAt)
		}
		if j.Done != nil {
			i.Done, i.Total = *j.Done, *j.Total
		}
		if j.EffectKey != nil {
			i.IdempotencyKey = keyText(j.EffectKey)
		}
		info.Jobs = append(info.Jobs, i)
		info.Step, info.Code, info.DueAt = i.Step, i.Code, i.DueAt
	}
	return nil
}

func (e *Engine) history(ctx context.Context, id uuid.UUID, g graph, info *RunInfo) error {
	p := db.HistoryOfRunParams{Shard: shardIn(id), RunID: id, Most: 1000}
	for {
		rows, err := e.db.HistoryOfRun(ctx, p)
		if err != nil {
			return err
		}
		for _, h := range rows {
			t := Transition{Job: h.Job, Token: h.Token, Step: g.name(int(h.Node)), From: cmp.Or(text(h.FromState), stateRunning), To: h.ToState, Event: h.Event, Writer: cmp.Or(text(h.Writer), writerWorker),
				Actor: text(h.Actor), Attempt: int(h.Attempt), GrantedAt: moment0(h.GrantedAt), EndedAt: h.EndedAt, Class: text(h.Class),
				Code: text(h.Code), Reason: text(h.Reason), EvidenceText: text(h.Evidence), Output: h.Output}
			if h.Owner != nil {
				t.Owner = h.Owner.String()
			}
			info.History = append(info.History, t)
		}
		if len(rows) < int(p.Most) {
			break
		}
		p.AfterJob, p.AfterToken = rows[len(rows)-1].Job, rows[len(rows)-1].Token
	}
	rows, err := e.db.EvidenceOfRun(ctx, db.EvidenceOfRunParams{Shard: shardIn(id), RunID: id})
	for _, v := range rows {
		info.Evidence = append(info.Evidence, Evidence{Step: g.name(int(v.Node)), Attempt: int(v.Attempt), At: v.CameAt, Output: v.Output,
			Class: text(v.Class), Code: text(v.Code), Reason: text(v.Reason)})
	}
	return err
}

// stateOf is the derived state; ListRuns says the same in SQL.
func stateOf(r db.GetRunRow, jobs []JobInfo) State {
	if r.Outcome != nil {
		return State(*r.Outcome)
	}
	if r.Cancelling {
		return Cancelling
	}
	has := map[string]bool{}
	for _, j := range jobs {
		has[j.State] = true
	}
	switch {
	case has[stateDead]:
		return Dead
	case has[stateUncertain]:
		return Uncertain
	case has[stateRunning]:
		return Running
	case has["waiting"]:
		return Waiting
	case len(jobs) > 0 && allLater(jobs):
		return Scheduled
	}
	return Running
}

func allLater(jobs []JobInfo) bool {
	for _, j := range jobs {
		if !j.later {
			return false
		}
	}
	return true
}

// soon is a due time; zero for one that never comes: a person must act.
func soon(t time.Time) time.Time {
	if t.UTC().Year() >= 9999 {
		return time.Time{}
	}
	return t
}

func moment0(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}
