package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

// Admin is a client for what a shop has no business with: the whole ledger and
// the switches.
type Admin struct {
	URL string
}

// Ledger returns everything that has happened.
func (a Admin) Ledger(ctx context.Context) (ledger Ledger, err error) {
	return ledger, a.call(ctx, http.MethodGet, "/ledger", nil, &ledger)
}

// Counts returns how many entries of each kind there are.
func (a Admin) Counts(ctx context.Context) (counts map[Kind]int, err error) {
	return counts, a.call(ctx, http.MethodGet, "/counts", nil, &counts)
}

// Switch switches faults: see Fault.
func (a Admin) Switch(ctx context.Context, faults ...Fault) error {
	var now []Fault
	return a.call(ctx, http.MethodPost, "/switches", faults, &now)
}

func (a Admin) call(ctx context.Context, method, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, a.URL+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		var r Refusal
		_ = json.NewDecoder(res.Body).Decode(&r)
		return fmt.Errorf("provider: %s %s: %s %s", method, path, res.Status, r.Message)
	}
	return json.NewDecoder(res.Body).Decode(out)
}
