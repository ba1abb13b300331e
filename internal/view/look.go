package view

import (
	"bytes"
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/pawlworks/pawl/internal/db"
)

// look names runs older than s.before, newest first, and looks at most at so
// many. floor is how far it came: at all that are not older it has looked. Nil:
// there is nothing more.
type look func(ctx context.Context, r *Reader, s *search, most int) (ids []uuid.UUID, floor uuid.UUID, err error)

// ways is how to find what fits: the first that fills the list is enough.
func (s *search) ways(ctx context.Context, r *Reader) ([]look, error) {
	only := func(states ...string) bool {
		return len(s.f.States) > 0 && !slices.ContainsFunc(s.f.States, func(state string) bool { return !slices.Contains(states, state) })
	}
	switch {
	case s.f.Key != "":
		return s.byKey(ctx, r)
	case only("failed", "dead"):
		return []look{eachShard(lookAtDead)}, nil
	case only("uncertain"):
		return []look{eachShard(lookAtUnsettled)}, nil
	case only("stranded"):
		return []look{eachShard(lookAtStranded)}, nil
	case s.f.Code != "", s.p.ByStep, len(s.f.States) > 0 && !slices.ContainsFunc(s.f.States, func(state string) bool { return state != "failed" && slices.Contains(ended, state) }):
		return []look{eachShard(lookAtJobs)}, nil
	case len(s.f.Tags) > 0:
		return []look{atMost(lookMost/4, s.runs()), lookAtTags}, nil
	}
	return []look{s.runs()}, nil
}

func (s *search) runs() look {
	if s.f.Workflow != "" {
		return lookAtWorkflow(s.f.Workflow)
	}
	return eachShard(lookAtRuns)
}

// byKey: the key knows its newest run, but not those before.
func (s *search) byKey(ctx context.Context, r *Reader) (ways []look, err error) {
	rows, err := r.q.LookAtKey(ctx, s.f.Key)
	var newest []uuid.UUID
	for _, k := range rows {
		if s.f.Workflow != "" && k.Workflow != s.f.Workflow {
			continue
		}
		newest = append(newest, k.ID)
		if k.Generation > 1 {
			ways = append(ways, lookAtWorkflow(k.Workflow))
		}
	}
	if len(ways) == 1 && len(newest) == 1 {
		return ways, err
	}
	if len(ways) > 0 { // of several workflows, some of which have used it again
		return []look{eachShard(lookAtRuns)}, err
	}
	return []look{func(_ context.Context, _ *Reader, s *search, _ int) (ids []uuid.UUID, _ uuid.UUID, _ error) {
		for _, id := range newest {
			if bytes.Compare(id[:], s.before[:]) < 0 {
				ids = append(ids, id)
			}
		}
		return ids, uuid.Nil, nil
	}}, err
}

// page adds what fits of one look.
func (s *search) page(ctx context.Context, r *Reader, look look, most int, found *[]db.ListRunsRow) (uuid.UUID, error) {
	ids, floor, err := look(ctx, r, s, most)
	if err != nil || len(ids) == 0 {
		return floor, err
	}
	slices.SortFunc(ids, newestFirst)
	ids = slices.Compact(ids)
	p := s.p
	p.Most = int32(s.f.Limit - len(*found))
	for _, id := range ids {
		p.Ids, p.Shards = append(p.Ids, id), append(p.Shards, shardOf(id))
	}
	rows, err := r.q.ListRuns(ctx, p)
	*found = append(*found, rows...)
	return floor, err
}

func newestFirst(a, b uuid.UUID) int { return bytes.Compare(b[:], a[:]) }

// eachShard looks into all shards. What one has looked at further than another
// is left for the next page.
func eachShard(in func(ctx context.Context, r *Reader, s *search, shard int16, most int) ([]uuid.UUID, uuid.UUID, error)) look {
	return func(ctx context.Context, r *Reader, s *search, most int) (all []uuid.UUID, floor uuid.UUID, err error) {
		for _, shard := range r.shards {
			ids, f, err := in(ctx, r, s, shard, most)
			if err != nil {
				return nil, floor, err
			}
			all = append(all, ids...)
			if bytes.Compare(f[:], floor[:]) > 0 {
				floor = f
			}
		}
		all = slices.DeleteFunc(all, func(id uuid.UUID) bool { return bytes.Compare(id[:], floor[:]) < 0 })
		return all, floor, nil
	}
}

// atMost looks at so many in all.
func atMost(all int, in look) look {
	return func(ctx context.Context, r *Reader, s *search, most int) ([]uuid.UUID, uuid.UUID, error) {
		most = min(most, all)
		all -= most
		ids, floor, err := in(ctx, r, s, most)
		if all == 0 {
			floor = uuid.Nil
		}
		return ids, floor, err
	}
}

func lookAtRuns(ctx context.Context, r *Reader, s *search, shard int16, most int) (ids []uuid.UUID, floor uuid.UUID, err error) {
	rows, err := r.q.LookAtRuns(ctx, db.LookAtRunsParams{Shard: shard, Outcomes: s.outcomes, Tags: s.p.Tags, First: s.first, Before: s.before, Most: int32(most)})
	for _, x := range rows {
		ids, floor = pick(ids, x.ID, x.N, x.Fits, most)
	}
	return ids, floor, err
}

func lookAtWorkflow(workflow string) look {
	return func(ctx context.Context, r *Reader, s *search, most int) (ids []uuid.UUID, floor uuid.UUID, err error) {
		rows, err := r.q.LookAtWorkflow(ctx, db.LookAtWorkflowParams{Workflow: workflow, Key: s.f.Key, Outcomes: s.outcomes, Tags: s.p.Tags, First: s.first, Before: s.before, Most: int32(most)})
		for _, x := range rows {
			ids, floor = pick(ids, x.ID, x.N, x.Fits, most)
		}
		return ids, floor, err
	}
}

func pick(ids []uuid.UUID, id uuid.UUID, n int32, fits bool, most int) (_ []uuid.UUID, floor uuid.UUID) {
	if fits {
		ids = append(ids, id)
	}
	if int(n) == most {
		floor = id
	}
	return ids, floor
}

func lookAtJobs(ctx context.Context, r *Reader, s *search, shard int16, most int) ([]uuid.UUID, uuid.UUID, error) {
	ids, err := r.q.LookAtJobs(ctx, db.LookAtJobsParams{Shard: shard, First: s.first, Before: s.before, Most: int32(most)})
	return last(ids, most, err)
}

func lookAtDead(ctx context.Context, r *Reader, s *search, shard int16, most int) ([]uuid.UUID, uuid.UUID, error) {
	ids, err := r.q.LookAtDead(ctx, db.LookAtDeadParams{Shard: shard, First: s.first, Before: s.before, Most: int32(most)})
	return last(ids, most, err)
}

func lookAtUnsettled(ctx context.Context, r *Reader, s *search, shard int16, most int) ([]uuid.UUID, uuid.UUID, error) {
	ids, err := r.q.LookAtUnsettled(ctx, db.LookAtUnsettledParams{Shard: shard, First: s.first, Before: s.before, Most: int32(most)})
	return last(ids, most, err)
}

// lookAtStranded looks at all there are, or as many as it may.
func lookAtStranded(ctx context.Context, r *Reader, s *search, shard int16, _ int) ([]uuid.UUID, uuid.UUID, error) {
	ids, err := r.q.LookAtStranded(ctx, db.LookAtStrandedParams{Shard: shard, First: s.first, Before: s.before, Most: lookMost})
	return last(ids, lookMost, err)
}

func lookAtTags(ctx context.Context, r *Reader, s *search, most int) ([]uuid.UUID, uuid.UUID, error) {
	ids, err := r.q.LookAtTags(ctx, db.LookAtTagsParams{Tags: s.f.Tags, First: s.first, Before: s.before, Most: int32(most)})
	return last(ids, most, err)
}

func last(ids []uuid.UUID, most int, err error) ([]uuid.UUID, uuid.UUID, error) {
	if len(ids) < most {
		return ids, uuid.Nil, err
	}
	return ids, ids[len(ids)-1], err
}
