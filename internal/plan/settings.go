package plan

import (
	"encoding/json"
	"math"
	"time"
)

// Lapses is how many leases in a row may end without a result, at one place and
// without its cursor moving, until the job is dead. It is no option.
const Lapses = 5

// Settings are a step's effective settings as they are stored beside the
// graph, for who looks at a database without the code. Options are no part of
// the graph: what is stored is what the process said that started last. Times
// are milliseconds; Endless stands for no limit.
type Settings struct {
	Kind         Kind     `json:"kind"`
	Queue        string   `json:"queue"`
	Owner        string   `json:"owner,omitempty"`
	Formerly     []string `json:"formerly,omitempty"`
	LeaseMs      int64    `json:"lease_ms"`
	HeartbeatMs  int64    `json:"heartbeat_ms"`
	MaxRuntimeMs int64    `json:"max_runtime_ms"`
	Retry        Budget   `json:"retry"`
	RetryUnknown Budget   `json:"retry_unknown"`
	Classifier   bool     `json:"classifier,omitempty"`
	Effect       Effect   `json:"effect,omitempty"`
	TTLMs        int64    `json:"ttl_ms,omitempty"`
	LateMs       int64    `json:"late_arrival_ms,omitempty"`
	Questions    *Budget  `json:"questions,omitempty"`
	Given        []string `json:"given"` // the names above that somebody chose; the others are defaults
}

// Budget is a Retry as it is stored.
type Budget struct {
	Attempts   int   `json:"attempts"`
	WithinMs   int64 `json:"within_ms"`
	DelayMs    int64 `json:"delay_ms"`
	MaxDelayMs int64 `json:"max_delay_ms"`
}

// Endless is a time without a limit.
const Endless = -1

// SettingsOf is what is stored of a definition's steps, by their names.
func SettingsOf(d *Definition) map[string]Settings {
	all := map[string]Settings{}
	for _, n := range d.Nodes {
		s := n.Step
		t := Settings{Kind: s.Kind, Queue: s.Queue, Owner: s.Owner, Formerly: s.Formerly, LeaseMs: millis(s.Lease), HeartbeatMs: millis(s.Heartbeat),
			MaxRuntimeMs: millis(s.MaxRuntime), Retry: s.Transient.stored(), RetryUnknown: s.Unknown.stored(), Classifier: s.Classify != nil,
			Effect: s.Effect, TTLMs: millis(s.TTL), LateMs: millis(s.LateArrival), Given: s.Given}
		if s.Effect == LookUp {
			q := s.Questions.stored()
			t.Questions = &q
		}
		if t.Given == nil {
			t.Given = []string{}
		}
		all[s.Name] = t
	}
	return all
}

// ReadSettings reads what is stored. It is empty if it is not understood: a
// newer release may have written it.
func ReadSettings(stored []byte) map[string]Settings {
	var all map[string]Settings
	if json.Unmarshal(stored, &all) != nil {
		return nil
	}
	return all
}

func (r Retry) stored() Budget {
	b := Budget{r.Attempts, millis(r.Within), millis(r.Delay), millis(r.MaxDelay)}
	if r.Within == 0 {
		b.WithinMs = Endless
	}
	return b
}

func millis(d time.Duration) int64 {
	if d == math.MaxInt64 {
		return Endless
	}
	return d.Milliseconds()
}
