package provider

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Mode says what goes wrong.
type Mode string

// The modes. Those that act after the deed have done it when they fire.
const (
	Declined      Mode = "decline"        // 402: definite, and remembered like a charge
	FailBefore    Mode = "fail-before"    // 500, nothing done
	FailAfter     Mode = "fail-after"     // 500, done
	TimeoutBefore Mode = "timeout-before" // no answer until the caller gives up, nothing done
	TimeoutAfter  Mode = "timeout-after"  // no answer until the caller gives up, done
	Lose          Mode = "lose"           // done, and the connection is closed in place of an answer
	Forget        Mode = "forget"         // the key is no longer remembered; the ledger is
	Slow          Mode = "slow"           // done after Delay, whether or not the caller still waits
)

var modes = []Mode{Declined, FailBefore, FailAfter, TimeoutBefore, TimeoutAfter, Lose, Forget, Slow}

// What a fault can be of. Look-ups can only fail before, and be slow.
const (
	Charges = "charges"
	Lookups = "lookups"
	Parcels = "parcels"
	Mails   = "mails"
)

var targets = []string{Charges, Lookups, Parcels, Mails}

// Fault is a switch: what goes wrong, where, and how often. A fault with
// neither Rate nor Next is switched off.
type Fault struct {
	Mode   Mode     `json:"mode"`
	On     string   `json:"on,omitempty"`     // default: charges
	Orders string   `json:"orders,omitempty"` // only orders whose id begins so
	Rate   float64  `json:"rate,omitempty"`   // 0 to 1
	Next   int      `json:"next,omitempty"`   // so many requests from now, before Rate counts
	Delay  Duration `json:"delay,omitempty"`  // of Slow
}

// Picks tells whether chance picks the n-th request for an order, counted from
// zero. It depends on nothing but its arguments, so what happens to an order
// does not depend on the others' speed. A card that is declined is declined
// however often it is tried: for Declined, n is always zero.
func (f Fault) Picks(seed uint64, order string, n int) bool {
	if f.Mode == Declined {
		n = 0
	}
	h := sha256.Sum256(fmt.Appendf(nil, "%d %s %s %d %s", seed, f.Mode, f.On, n, order))
	return float64(binary.BigEndian.Uint64(h[:])>>11)/(1<<53) < f.Rate
}

// check fills in the default and refuses what makes no sense.
func (f *Fault) check() error {
	if f.On == "" {
		f.On = Charges
	}
	switch {
	case !slices.Contains(modes, f.Mode):
		return fmt.Errorf("a fault's mode is one of %v, not %q", modes, f.Mode)
	case !slices.Contains(targets, f.On):
		return fmt.Errorf("a fault is on one of %v, not on %q", targets, f.On)
	case f.Rate < 0 || f.Rate > 1 || f.Next < 0:
		return fmt.Errorf("%s: a rate is from 0 to 1, and next is not negative", f.Mode)
	case f.On != Charges && (f.Mode == Declined || f.Mode == Forget),
		f.On == Lookups && (f.Mode == FailAfter || f.Mode == TimeoutAfter || f.Mode == Lose):
		return fmt.Errorf("%s means nothing on %s", f.Mode, f.On)
	case (f.Mode == Slow) != (f.Delay > 0) && (f.Rate > 0 || f.Next > 0):
		return fmt.Errorf("%s: a delay belongs to %s, and to nothing else", f.Mode, Slow)
	}
	return nil
}

// ParseFault reads a fault as a flag has it: lose:rate=0.1,on=parcels.
func ParseFault(text string) (f Fault, err error) {
	mode, rest, _ := strings.Cut(text, ":")
	f.Mode = Mode(mode)
	for _, part := range strings.FieldsFunc(rest, func(r rune) bool { return r == ',' }) {
		name, value, _ := strings.Cut(part, "=")
		switch name {
		case "on":
			f.On = value
		case "orders":
			f.Orders = value
		case "rate":
			f.Rate, err = strconv.ParseFloat(value, 64)
		case "next":
			f.Next, err = strconv.Atoi(value)
		case "delay":
			err = f.Delay.UnmarshalText([]byte(value))
		default:
			err = fmt.Errorf("a fault has no %q", name)
		}
		if err != nil {
			return f, fmt.Errorf("fault %q: %w", text, err)
		}
	}
	return f, f.check()
}

// Duration is a time.Duration that JSON shows as 1.5s.
type Duration time.Duration

func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = Duration(v)
	return err
}
