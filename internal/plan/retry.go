package plan

import (
	"math"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// maxDoublings is where doubling stops: a nanosecond doubled so often is more
// than a Duration holds.
const maxDoublings = 63

// After returns how long to wait after so many failures in a row: uniform
// between zero and the smaller of Delay*2^(failures-1) and MaxDelay. It is
// zero when nothing has failed yet.
func (r Retry) After(failures int) time.Duration {
	limit := min(r.Delay, r.MaxDelay)
	if failures < 1 || limit <= 0 {
		return 0
	}
	for range min(failures-1, maxDoublings) {
		if limit > r.MaxDelay/2 {
			limit = r.MaxDelay
			break
		}
		limit *= 2
	}
	// With a factor of 1 backoff draws from [0, 2*interval].
	b := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(limit/2),
		backoff.WithMaxInterval(limit/2),
		backoff.WithRandomizationFactor(1),
		backoff.WithMaxElapsedTime(0),
	)
	d := b.NextBackOff()
	if d < 0 || d > limit { // the float behind it rounds near math.MaxInt64
		return limit
	}
	return d
}

// Forever is the longest time: a target that never forgets a key.
const Forever time.Duration = math.MaxInt64
