package engine

import (
	"fmt"
	"strconv"
	"strings"
)

// A ref says in which history row a value is recorded that the run still
// needs. What is a node's number for its output; corrected(node) for the
// input that a person put in the place of the one that is made.
type ref struct {
	what       int
	job, token int64
}

func corrected(node int) int { return -2 - node }

type refs []ref

func parseRefs(s string) (refs, error) {
	var rs refs
	for f := range strings.FieldsSeq(s) {
		p := strings.Split(f, ":")
		if len(p) != 3 {
			return nil, fmt.Errorf("pawl: a job's reference %q is not understood", f)
		}
		what, e1 := strconv.Atoi(p[0])
		job, e2 := strconv.ParseInt(p[1], 10, 64)
		token, e3 := strconv.ParseInt(p[2], 10, 64)
		if e1 != nil || e2 != nil || e3 != nil {
			return nil, fmt.Errorf("pawl: a job's reference %q is not understood", f)
		}
		rs = append(rs, ref{what, job, token})
	}
	return rs, nil
}

func (rs refs) String() string {
	var room [64]byte // most are short
	b := room[:0]
	for i, r := range rs {
		if i > 0 {
			b = append(b, ' ')
		}
		b = append(strconv.AppendInt(b, int64(r.what), 10), ':')
		b = append(strconv.AppendInt(b, r.job, 10), ':')
		b = strconv.AppendInt(b, r.token, 10)
	}
	return string(b)
}

func (rs refs) find(what int) (ref, bool) {
	for _, r := range rs {
		if r.what == what {
			return r, true
		}
	}
	return ref{}, false
}

// with replaces what r says or adds it.
func (rs refs) with(r ref) refs {
	out := make(refs, 0, len(rs)+1)
	for _, o := range rs {
		if o.what != r.what {
			out = append(out, o)
		}
	}
	return append(out, r)
}

// onward is what a run at the node still needs, of these and of r, which
// replaces what was said of the same.
func (rs refs) onward(r ref, node int, b *binding) refs {
	needed := func(r ref) bool {
		return r.what >= 0 && r.what < len(b.lastUse) && b.lastUse[r.what] >= node || r.what == corrected(node)
	}
	out := make(refs, 0, len(rs)+1)
	for _, o := range rs {
		if o.what != r.what && needed(o) {
			out = append(out, o)
		}
	}
	if needed(r) {
		out = append(out, r)
	}
	return out
}
