package engine

import "time"

// A moment is a point in time by both of the process's clocks. A lease is
// trusted by whichever has moved further since: a suspended machine's
// monotonic clock stands still, and a wall clock may be set back.
type moment time.Time

func moments() moment { return moment(time.Now()) }

// elapsed is the time since m.
func (m moment) elapsed() time.Duration { return m.until(moments()) }

// until is the time from m to n.
func (m moment) until(now moment) time.Duration {
	t, n := time.Time(m), time.Time(now)
	return max(n.Sub(t), n.Round(0).Sub(t.Round(0)))
}

// after tells whether m is later than o, by the clock that does not jump.
func (m moment) after(o moment) bool { return time.Time(m).After(time.Time(o)) }

// margin is how long before its end a lease is given up by its holder.
func margin(lease time.Duration) time.Duration {
	return min(max(lease/10, 10*time.Millisecond), 2*time.Second)
}

func ms(d time.Duration) int64 { return int64(max(d, 0) / time.Millisecond) }
