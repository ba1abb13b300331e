package workload

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawlworks/pawl/bench/internal/meter"
)

// claims is a tracer that times the statements named Claim: from sending to
// the end of the answer, with the transaction around them where they have one.
type claims struct {
	on    atomic.Bool
	times atomic.Pointer[meter.Times]
}

func newClaims() *claims {
	c := &claims{}
	c.times.Store(&meter.Times{})
	return c
}

type sentKey struct{}

type sent struct {
	at    time.Time
	claim bool
}

func isClaim(sql string) bool {
	return strings.HasPrefix(sql, "-- name: Claim ") || strings.HasPrefix(sql, "-- name: Claim\n")
}

func (c *claims) add(s *sent) {
	if s != nil && s.claim && c.on.Load() {
		c.times.Load().Add(time.Since(s.at))
	}
}

func (c *claims) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	return context.WithValue(ctx, sentKey{}, &sent{time.Now(), isClaim(d.SQL)})
}

func (c *claims) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	s, _ := ctx.Value(sentKey{}).(*sent)
	c.add(s)
}

func (c *claims) TraceBatchStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceBatchStartData) context.Context {
	s := &sent{at: time.Now()}
	for _, q := range d.Batch.QueuedQueries {
		s.claim = s.claim || isClaim(q.SQL)
	}
	return context.WithValue(ctx, sentKey{}, s)
}

func (c *claims) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (c *claims) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchEndData) {
	s, _ := ctx.Value(sentKey{}).(*sent)
	c.add(s)
}
