package view

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/pawlworks/pawl/internal/db"
)

// Queue is what waits and runs in a queue.
type Queue struct {
	Name    string    `json:"name"`
	Due     int64     `json:"due"`
	Later   int64     `json:"later"` // scheduled, and tried again later
	More    bool      `json:"more"`  // there is more than was counted
	Running int64     `json:"running"`
	Oldest  time.Time `json:"oldest_due_at,omitzero"` // due since
}

// depthMost is how many waiting jobs are counted, all queues together.
const depthMost = 200_000

// queues counts what waits.
func (r *Reader) queues(ctx context.Context, s *Status) error {
	busy, err := r.q.BusyRoutes(ctx, r.shards)
	if err != nil {
		return err
	}
	p := db.QueueDepthsParams{Routes: []int32{}, Shards: []int16{}, Most: int32(max(depthMost/max(len(busy), 1), 1000))}
	for _, b := range busy {
		p.Routes, p.Shards = append(p.Routes, b.Route), append(p.Shards, b.Shard)
	}
	rows, err := r.q.QueueDepths(ctx, p)
	for _, c := range rows {
		q := s.queue(c.Queue)
		q.Due, q.Later, q.More = c.Due, c.Later, c.More
		if q.Due > 0 {
			q.Oldest = soon(c.Oldest)
		}
	}
	slices.SortFunc(s.Queues, func(a, b Queue) int { return strings.Compare(a.Name, b.Name) })
	return err
}

// queue is the queue of that name, there from now on.
func (s *Status) queue(name string) *Queue {
	for i := range s.Queues {
		if s.Queues[i].Name == name {
			return &s.Queues[i]
		}
	}
	s.Queues = append(s.Queues, Queue{Name: name})
	return &s.Queues[len(s.Queues)-1]
}
