//go:build unix

package pawl_test

import "net/http"

// manner is how the target treats the first request for a charge of an order;
// to later ones it behaves. Nobody who asks can tell those that come before the
// charge from those after it.
type manner string

const (
	behaves      manner = "behaves"
	failsBefore  manner = "fails-before"  // 500, not charged
	failsAfter   manner = "fails-after"   // 500, charged
	silentBefore manner = "silent-before" // no answer in time, not charged
	silentAfter  manner = "silent-after"  // no answer in time, charged
	losesAnswer  manner = "loses-answer"  // the connection breaks, charged
	declines     manner = "declines"      // a definite no, to every request
)

// charges tells whether there is an effect behind such a first request.
func (m manner) charges() bool {
	switch m {
	case failsBefore, silentBefore, declines:
		return false
	}
	return true
}

// treats says how a request is met.
func (g *target) treats(c call) manner {
	g.mu.Lock()
	defer g.mu.Unlock()
	how, ok := g.manners[c.Order]
	if !ok || c.Step != "charge" {
		return behaves
	}
	g.shown[how]++
	if how != declines {
		g.manners[c.Order] = behaves
	}
	return how
}

// before is what comes before the effect; false: it does not come to that.
func (m manner) before(g *target, w http.ResponseWriter, r *http.Request) bool {
	switch m {
	case declines:
		w.WriteHeader(http.StatusPaymentRequired)
	case failsBefore:
		w.WriteHeader(http.StatusInternalServerError)
	case silentBefore:
		g.silent(r)
	default:
		return true
	}
	return false
}

// after is what comes instead of the answer; false: there is none.
func (m manner) after(g *target, w http.ResponseWriter, r *http.Request) bool {
	switch m {
	case failsAfter:
		w.WriteHeader(http.StatusInternalServerError)
	case silentAfter:
		g.silent(r)
	case losesAnswer:
		panic(http.ErrAbortHandler) // net/http closes the connection
	default:
		return true
	}
	return false
}

// silent says nothing for as long as the other waits.
func (g *target) silent(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-g.closed:
	}
}
