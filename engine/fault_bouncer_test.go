package engine_test

import (
	"context"
	"io"
	"net"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/pawlworks/pawl/engine"
	"github.com/pawlworks/pawl/internal/pgtest"
	"github.com/pawlworks/pawl/steps"
)

// bouncer stands in for PgBouncer whose connection to the server breaks after
// it has passed COMMIT on: the client gets FATAL 08P01 "server conn crashed?",
// which says nothing of what became of the COMMIT.
func bouncer(t *testing.T, dsn string, crashes func() bool) string {
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	target := u.Host
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer client.Close()
				server, err := net.Dial("tcp", target)
				if err != nil {
					return
				}
				defer server.Close()
				var mute atomic.Bool
				go func() {
					defer client.Close()
					buf := make([]byte, 32<<10)
					for {
						n, err := server.Read(buf)
						if n > 0 && !mute.Load() {
							client.Write(buf[:n])
						}
						if err != nil {
							return
						}
					}
				}()
				head := make([]byte, 4) // the start-up
				if _, err := io.ReadFull(client, head); err != nil {
					return
				}
				size := int(head[0])<<24 | int(head[1])<<16 | int(head[2])<<8 | int(head[3])
				rest := make([]byte, size-4)
				io.ReadFull(client, rest)
				server.Write(append(head, rest...))
				for {
					h := make([]byte, 5)
					if _, err := io.ReadFull(client, h); err != nil {
						return
					}
					n := int(h[1])<<24 | int(h[2])<<16 | int(h[3])<<8 | int(h[4])
					body := make([]byte, n-4)
					if _, err := io.ReadFull(client, body); err != nil {
						return
					}
					if h[0] == 'Q' && string(body) == "commit\x00" && crashes() {
						mute.Store(true)
						server.Write(append(h, body...))
						time.Sleep(300 * time.Millisecond) // it is committed
						out, _ := (&pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: "08P01", Message: "server conn crashed?"}).Encode(nil)
						client.Write(out)
						return
					}
					server.Write(append(h, body...))
				}
			}()
		}
	}()
	u.Host = l.Addr().String()
	return u.String()
}

// A transactional step behind PgBouncer: the connection to the server breaks
// after COMMIT. The step is done; its successor must go on.
func TestFaultBouncerTx(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	direct := effPool(t, url)
	effExec(t, direct, "CREATE TABLE public.ledger (n int)")
	var commits atomic.Int64
	pool := effPool(t, bouncer(t, url, func() bool { return commits.Add(1) == 1 }))
	w := steps.Declare[int, int]("tx")
	log := &envLog{}
	next := make(chan bool, 10)
	ins := steps.NewTx("ins", func(ctx context.Context, tx pgx.Tx, n int) (int, error) {
		_, err := tx.Exec(ctx, "INSERT INTO public.ledger VALUES ($1)", n)
		return n, err
	})
	after := steps.New("after", func(ctx context.Context, n int) (int, error) { next <- true; return n, nil })
	e := effEngine(t, pool, engine.Config{NoListen: true, Logger: log.logger(), Workflows: []steps.Definition{w.Define(func(f *steps.Flow, in steps.Ref[int]) steps.Ref[int] {
		return after.Do(f, ins.Do(f, in))
	})}})
	work(t, e)
	r := effStart(t, e, w, 0)
	effUntil(t, "it is committed", func() bool { return effScan[int](t, direct, "SELECT count(*) FROM public.ledger") == 1 })
	select {
	case <-next:
	case <-time.After(20 * time.Second):
		t.Errorf("20 s after its commit the successor has not been called: %v\n%s", effEvents(effGet(t, e, r.ID)), log.last(5))
	}
}

// The same in a cursor's CommitTx: the body is told an error for what was
// committed; a body that tries again with its next chunk loses that.
func TestFaultBouncerChunk(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	direct := effPool(t, url)
	effExec(t, direct, "CREATE TABLE public.chunks (n int PRIMARY KEY)")
	var commits atomic.Int64
	pool := effPool(t, bouncer(t, url, func() bool { return commits.Add(1) == 1 }))
	w := steps.Declare[int, int]("import")
	e := effEngine(t, pool, engine.Config{NoListen: true, Workflows: []steps.Definition{w.Of(steps.NewLong("long", func(ctx context.Context, n int, cur *steps.Cursor[int]) (int, error) {
		for p := cur.At(); p < 3; p++ {
			for try := 0; ; try++ { // the importer's own retries
				err := cur.CommitTx(ctx, p+1, func(tx pgx.Tx) error {
					_, err := tx.Exec(ctx, "INSERT INTO public.chunks VALUES ($1)", p)
					return err
				})
				t.Logf("chunk %d: %v", p, err)
				if duplicate(err) {
					break
				}
				if err == nil {
					break
				}
				if try > 3 || ctx.Err() != nil {
					return 0, err
				}
			}
		}
		return n, nil
	}))}})
	work(t, e)
	effSuccess(t, e, effStart(t, e, w, 1))
	if rows := effScan[int](t, direct, "SELECT count(*) FROM public.chunks"); rows != 3 {
		t.Errorf("%d of 3 chunks are there", rows)
	}
}
