package provider

import (
	"net/http"
	"time"
)

// before lets the faults strike that strike before the deed, and tells whether
// the request goes on.
func (p *Provider) before(w http.ResponseWriter, r *http.Request, v visit) bool {
	if _, hit := v.hit(FailBefore); hit {
		refuse(w, http.StatusInternalServerError, "internal", "the provider failed before it did anything")
		return false
	}
	if _, hit := v.hit(TimeoutBefore); hit {
		p.hang(r)
	}
	if f, hit := v.hit(Slow); hit {
		// Not ended by the caller's giving up: this is how a charge comes
		// late, when whoever asked for it has long stopped waiting.
		select {
		case <-time.After(time.Duration(f.Delay)):
		case <-p.closed:
			panic(http.ErrAbortHandler)
		}
	}
	return true
}

// after lets the faults strike that strike after the deed, and tells whether
// the caller gets his answer.
func (p *Provider) after(w http.ResponseWriter, r *http.Request, v visit) bool {
	if _, hit := v.hit(FailAfter); hit {
		refuse(w, http.StatusInternalServerError, "internal", "the provider failed after it had done it")
		return false
	}
	if _, hit := v.hit(TimeoutAfter); hit {
		p.hang(r)
	}
	if _, hit := v.hit(Lose); hit {
		panic(http.ErrAbortHandler) // net/http closes the connection
	}
	return true
}

// hang says nothing until the caller gives up, and then nothing either.
func (p *Provider) hang(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-p.closed:
	case <-time.After(p.options.Hang):
	}
	panic(http.ErrAbortHandler)
}
