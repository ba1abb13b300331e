package csvimport_test

import (
	"context"
	"encoding/csv"
	"io"
	"os"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// line is a row of the file by the library's count.
type line struct {
	number int64
	values []string
}

// reference reads the file with encoding/csv: header and rows.
func reference(t *testing.T, path string) (all []line) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r := csv.NewReader(file)
	for {
		values, err := r.Read()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		number, _ := r.FieldPos(0)
		all = append(all, line{int64(number), values})
	}
}

// equal compares the table with the file, row for row.
func equal(t *testing.T, pool *pgxpool.Pool, schema string, want []line) {
	t.Helper()
	rows, err := pool.Query(context.Background(), "SELECT * FROM "+pgx.Identifier{schema, "rows"}.Sanitize()+" ORDER BY line")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	n := 0
	for ; rows.Next(); n++ {
		values, err := rows.Values()
		if err != nil {
			t.Fatal(err)
		}
		got := line{number: values[0].(int64)}
		for _, v := range values[1:] {
			got.values = append(got.values, v.(string))
		}
		if n >= len(want) {
			t.Fatalf("more than the %d rows of the file", len(want))
		}
		if got.number != want[n].number || !slices.Equal(got.values, want[n].values) {
			t.Fatalf("row %d is %+v, want %+v", n+1, got, want[n])
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if n != len(want) {
		t.Errorf("%d rows, the file has %d", n, len(want))
	}
}
