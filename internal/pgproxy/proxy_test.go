package pgproxy_test

import (
	"context"
	"errors"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/pawlworks/pawl/internal/pgproxy"
	"github.com/pawlworks/pawl/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// setup gives a connection through a proxy and one past it. There is a table
// t (n int).
func setup(t *testing.T) (p *pgproxy.Proxy, through, direct *pgx.Conn) {
	t.Helper()
	p, err := pgproxy.New(pgtest.Server(t).Addr())
	if err != nil {
		t.Fatal(err)
	}
	dsn := pgtest.Database(t)
	t.Cleanup(p.Close)
	direct = connect(t, dsn)
	exec(t, direct, "CREATE TABLE t (n int)")
	return p, connect(t, p.URL(dsn)), direct
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// Through a stalled proxy a polite end would wait for ever.
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	})
	return conn
}

func exec(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func count(t *testing.T, conn *pgx.Conn) (n int) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM t").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// on answers action for SQL that contains the word.
func on(word string, action pgproxy.Action) func(string) pgproxy.Action {
	return func(sql string) pgproxy.Action {
		if strings.Contains(sql, word) {
			return action
		}
		return pgproxy.Pass
	}
}

// transaction is a whole transaction with one Sync at its end.
func transaction(ctx context.Context, conn *pgx.Conn) error {
	pipe := conn.PgConn().StartPipeline(ctx)
	for _, sql := range []string{"BEGIN", "INSERT INTO t VALUES (1)", "COMMIT"} {
		pipe.SendQueryParams(sql, nil, nil, nil, nil)
	}
	return errors.Join(pipe.Sync(), pipe.Close())
}

func TestPass(t *testing.T) {
	t.Parallel()
	p, through, direct := setup(t)
	var mu sync.Mutex
	var seen []string
	p.OnExecute(func(sql string) pgproxy.Action {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, sql)
		return pgproxy.Pass
	})
	exec(t, through, "INSERT INTO t VALUES ($1)", 1) // a named prepared statement
	exec(t, through, "INSERT INTO t VALUES ($1)", 2) // the same one, bound again
	exec(t, through, "INSERT INTO t VALUES (3)", pgx.QueryExecModeSimpleProtocol)
	if err := transaction(t.Context(), through); err != nil {
		t.Fatal(err)
	}
	if _, err := through.CopyFrom(t.Context(), pgx.Identifier{"t"}, []string{"n"}, pgx.CopyFromRows([][]any{{5}, {6}})); err != nil {
		t.Fatal(err)
	}
	if n := count(t, direct); n != 6 {
		t.Errorf("%d rows", n)
	}
	want := []string{
		"INSERT INTO t VALUES ($1)", "INSERT INTO t VALUES ($1)", "INSERT INTO t VALUES (3)",
		"BEGIN", "INSERT INTO t VALUES (1)", "COMMIT",
	}
	if len(seen) != len(want)+1 || !slices.Equal(seen[:len(want)], want) || !strings.Contains(seen[len(want)], "copy") {
		t.Errorf("saw %q", seen)
	}
}

func TestTLSIsDeclined(t *testing.T) {
	t.Parallel()
	p, _, _ := setup(t)
	u, err := url.Parse(p.URL(pgtest.Database(t)))
	if err != nil {
		t.Fatal(err)
	}
	u.RawQuery = "sslmode=prefer"
	exec(t, connect(t, u.String()), "SELECT 1")
}

func TestServerErrorsPass(t *testing.T) {
	t.Parallel()
	_, through, _ := setup(t)
	if _, err := through.Exec(t.Context(), "SELECT 1/0"); err == nil || !strings.Contains(err.Error(), "22012") {
		t.Error(err)
	}
	exec(t, through, "SELECT 1")
}

func TestCutAfterCommit(t *testing.T) {
	t.Parallel()
	p, through, direct := setup(t)
	p.OnExecute(on("commit", pgproxy.CutAfter))
	tx, err := through.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "INSERT INTO t VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err == nil {
		t.Error("the client got its answer")
	}
	if n := count(t, direct); n != 1 {
		t.Errorf("%d rows; the commit should have taken place", n)
	}
	if p.Fired(pgproxy.CutAfter) != 1 {
		t.Error("not counted")
	}
}

func TestCutPipeline(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		action pgproxy.Action
		rows   int
	}{"after": {pgproxy.CutAfter, 1}, "before": {pgproxy.CutBefore, 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, through, direct := setup(t)
			p.OnExecute(on("COMMIT", test.action))
			if err := transaction(t.Context(), through); err == nil {
				t.Error("the client got its answer")
			}
			if n := count(t, direct); n != test.rows {
				t.Errorf("%d rows, want %d", n, test.rows)
			}
			if p.Fired(test.action) != 1 {
				t.Error("not counted")
			}
		})
	}
}

// TestEarlierAnswersArrive sends two requests before it reads anything; only
// the second is hit.
func TestEarlierAnswersArrive(t *testing.T) {
	t.Parallel()
	p, through, direct := setup(t)
	p.OnExecute(on("(2)", pgproxy.CutAfter))
	pipe := through.PgConn().StartPipeline(t.Context())
	for _, sql := range []string{"INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (2)"} {
		pipe.SendQueryParams(sql, nil, nil, nil, nil)
		if err := pipe.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	var got []bool
	for range 4 { // a result and a sync each
		_, err := pipe.GetResults()
		got = append(got, err == nil)
	}
	_ = pipe.Close()
	if !slices.Equal(got, []bool{true, true, false, false}) {
		t.Errorf("answers: %v", got)
	}
	if n := count(t, direct); n != 2 {
		t.Errorf("%d rows, want both", n)
	}
}

func TestCutAfterFlush(t *testing.T) {
	t.Parallel()
	p, through, direct := setup(t)
	p.OnExecute(on("INSERT", pgproxy.CutAfter))
	pipe := through.PgConn().StartPipeline(t.Context())
	pipe.SendQueryParams("INSERT INTO t VALUES (1)", nil, nil, nil, nil)
	pipe.SendFlushRequest()
	if err := pipe.Flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := pipe.GetResults(); err == nil {
		t.Error("the client got its answer")
	}
	_ = pipe.Close()
	if n := count(t, direct); n != 1 {
		t.Errorf("%d rows", n)
	}
}

// TestStall: the client vanishes, and its statement arrives all the same when
// the network heals.
func TestStall(t *testing.T) {
	t.Parallel()
	p, through, direct := setup(t)
	arrived := make(chan struct{})
	p.OnExecute(func(sql string) pgproxy.Action {
		close(arrived)
		return pgproxy.Stall
	})
	answer := make(chan error, 1)
	go func() {
		_, err := through.Exec(t.Context(), "INSERT INTO t VALUES (1)", pgx.QueryExecModeSimpleProtocol)
		answer <- err
	}()
	<-arrived
	// pgx sends a request to cancel behind it; that is lost.
	_ = through.PgConn().Conn().Close()
	if err := <-answer; err == nil {
		t.Error("an answer out of a black hole")
	}
	if n := count(t, direct); n != 0 {
		t.Errorf("%d rows during the stall", n)
	}
	exec(t, direct, "LISTEN arrived")
	exec(t, direct, `CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NOTIFY arrived; RETURN NEW; END';
		CREATE TRIGGER tell AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION tell()`, pgx.QueryExecModeSimpleProtocol)
	p.OnExecute(nil)
	p.Release()
	patience, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := direct.WaitForNotification(patience); err != nil {
		t.Fatal("the late statement did not arrive: ", err)
	}
	if p.Fired(pgproxy.Stall) != 1 {
		t.Error("not counted")
	}
}

func TestStallAll(t *testing.T) {
	t.Parallel()
	p, through, direct := setup(t)
	p.StallAll()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if conn, err := pgx.Connect(ctx, p.URL(direct.Config().ConnString())); err == nil {
		_ = conn.Close(t.Context())
		t.Error("a new connection came through")
	}
	answer := make(chan error, 1)
	go func() {
		_, err := through.Exec(t.Context(), "INSERT INTO t VALUES (1)")
		answer <- err
	}()
	if n := count(t, direct); n != 0 {
		t.Errorf("%d rows during the stall", n)
	}
	p.Release()
	if err := <-answer; err != nil {
		t.Error("a patient client: ", err)
	}
	if n := count(t, direct); n != 1 {
		t.Errorf("%d rows after it", n)
	}
}

func TestCancelRequestPasses(t *testing.T) {
	t.Parallel()
	p, through, _ := setup(t)
	p.OnExecute(func(string) pgproxy.Action { return pgproxy.Pass })
	ctx, cancel := context.WithCancel(t.Context())
	answer := make(chan error, 1)
	go func() { answer <- through.PgConn().Exec(t.Context(), "SELECT pg_sleep(60)").Close() }()
	// Again and again: one that comes before the statement cancels nothing.
	go func() {
		for ctx.Err() == nil {
			_ = through.PgConn().CancelRequest(ctx)
		}
	}()
	err := <-answer
	cancel()
	if err == nil || !strings.Contains(err.Error(), "57014") {
		t.Error(err)
	}
}

func TestDelay(t *testing.T) {
	t.Parallel()
	p, through, _ := setup(t)
	p.OnExecute(on("INSERT", pgproxy.Delay(150*time.Millisecond)))
	start := time.Now()
	exec(t, through, "INSERT INTO t VALUES (1)")
	if took := time.Since(start); took < 150*time.Millisecond {
		t.Errorf("took %v", took)
	}
	if p.Fired(pgproxy.Delay(0)) != 1 {
		t.Error("not counted")
	}
}

func TestCutAll(t *testing.T) {
	t.Parallel()
	p, through, direct := setup(t)
	p.CutAll()
	if _, err := through.Exec(t.Context(), "SELECT 1"); err == nil {
		t.Error("the connection lives")
	}
	exec(t, connect(t, p.URL(direct.Config().ConnString())), "SELECT 1")
}

func TestCloseFreesTheStalled(t *testing.T) {
	t.Parallel()
	p, through, _ := setup(t)
	p.StallAll()
	answer := make(chan error, 1)
	go func() {
		_, err := through.Exec(t.Context(), "SELECT 1")
		answer <- err
	}()
	p.Close()
	if err := <-answer; err == nil {
		t.Error("an answer out of a black hole")
	}
	p.Close() // twice does no harm
}
