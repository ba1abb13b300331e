package orders_test

import (
	"strings"
	"testing"

	"github.com/pawlworks/pawl/examples/order/orders"
)

func TestFile(t *testing.T) {
	t.Parallel()
	list, err := orders.All()
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < 1000 {
		t.Errorf("the file has %d orders, want a thousand at least", len(list))
	}
	seen := map[string]bool{}
	for _, o := range list {
		if seen[o.ID] {
			t.Errorf("%s is there twice: ids are the keys of runs", o.ID)
		}
		seen[o.ID] = true
	}
}

func TestReadRefuses(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"order-1,customer-1,sku-01,1", // a field is missing
		"order-1,customer-1,sku-01,0,100",
		"order-1,customer-1,sku-01,1,-100",
		"order-1,customer-1,sku-01,one,100",
		",customer-1,sku-01,1,100",
	} {
		if list, err := orders.Read(strings.NewReader("id,customer,sku,quantity,cents\n" + line + "\n")); err == nil {
			t.Errorf("%q was read as %+v", line, list)
		}
	}
}
