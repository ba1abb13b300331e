package shop_test

import (
	"os"
	"sync"
	"testing"

	"github.com/pawlworks/pawl/examples/order/shop"
	"github.com/pawlworks/pawl/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

func TestSetupAtTheSameTime(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := shop.Setup(t.Context(), pool); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	var articles int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM shop.stock WHERE on_hand = delivered`).Scan(&articles); err != nil || articles == 0 {
		t.Errorf("%d articles in stock, %v", articles, err)
	}
}

func TestDefinition(t *testing.T) {
	t.Parallel()
	if err := (&shop.Shop{}).Fulfil().Err(); err != nil {
		t.Error(err)
	}
}
