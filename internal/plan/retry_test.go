package plan_test

import (
	"math"
	"testing"
	"time"

	"github.com/pawlworks/pawl/internal/plan"
)

func TestRetryAfterBounds(t *testing.T) {
	t.Parallel()
	r := plan.Retry{Delay: time.Second, MaxDelay: 10 * time.Minute}
	for _, c := range []struct {
		retry    plan.Retry
		failures int
		limit    time.Duration
	}{
		{r, -1, 0},
		{r, 0, 0},
		{r, 1, time.Second},
		{r, 2, 2 * time.Second},
		{r, 3, 4 * time.Second},
		{r, 10, 512 * time.Second},
		{r, 11, 10 * time.Minute},
		{r, 31, 10 * time.Minute},
		{r, 1000, 10 * time.Minute},
		{r, 1 << 40, 10 * time.Minute},
		{r, math.MaxInt, 10 * time.Minute},
		{plan.Retry{}, 5, 0},
		{plan.Retry{Delay: time.Minute, MaxDelay: time.Second}, 1, time.Second},
		{plan.Retry{Delay: 1, MaxDelay: plan.Forever}, 1 << 40, plan.Forever},
		{plan.Retry{Delay: plan.Forever, MaxDelay: plan.Forever}, 31, plan.Forever},
		{plan.Retry{Delay: time.Hour, MaxDelay: plan.Forever}, 1000, plan.Forever},
		{plan.Retry{Delay: -1, MaxDelay: time.Hour}, 3, 0},
	} {
		var low, high int
		for range 400 {
			d := c.retry.After(c.failures)
			if d < 0 || d > c.limit {
				t.Fatalf("%+v.After(%d) = %v, want at most %v", c.retry, c.failures, d, c.limit)
			}
			if d < c.limit/4 {
				low++
			}
			if d > c.limit/4*3 {
				high++
			}
		}
		if c.limit > 0 && (low < 40 || high < 40) {
			t.Errorf("%+v.After(%d): %d of 400 in the lowest quarter, %d in the highest", c.retry, c.failures, low, high)
		}
	}
}
