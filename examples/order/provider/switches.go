package provider

import (
	"slices"
	"strings"
	"sync"
)

// switches are the faults that are on now, and what chance needs to know.
type switches struct {
	seed uint64

	mu     sync.Mutex
	faults []Fault
	seen   map[string]int // requests so far, by target and order
}

// set switches faults: each replaces the one of its mode, target and orders.
// It is all of them or, with an error, none.
func (s *switches) set(faults []Fault) error {
	faults = slices.Clone(faults)
	for i := range faults {
		if err := faults[i].check(); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range faults {
		s.faults = slices.DeleteFunc(s.faults, func(old Fault) bool {
			return old.Mode == f.Mode && old.On == f.On && old.Orders == f.Orders
		})
		if f.Rate > 0 || f.Next > 0 {
			s.faults = append(s.faults, f)
		}
	}
	return nil
}

func (s *switches) list() []Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Fault{}, s.faults...)
}

// visit is one request to one target, as the faults see it.
type visit struct {
	s     *switches
	on    string
	order string
	n     int
}

func (s *switches) visit(on, order string) visit {
	s.mu.Lock()
	defer s.mu.Unlock()
	where := on + " " + order
	n := s.seen[where]
	s.seen[where]++
	return visit{s: s, on: on, order: order, n: n}
}

// hit tells whether a fault of this mode strikes, and uses it up if it was
// for the next few only.
func (v visit) hit(mode Mode) (Fault, bool) {
	v.s.mu.Lock()
	defer v.s.mu.Unlock()
	for i := range v.s.faults {
		f := &v.s.faults[i]
		if f.Mode != mode || f.On != v.on || !strings.HasPrefix(v.order, f.Orders) {
			continue
		}
		if f.Next > 0 {
			f.Next--
			return *f, true
		}
		if f.Picks(v.s.seed, v.order, v.n) {
			return *f, true
		}
	}
	return Fault{}, false
}
