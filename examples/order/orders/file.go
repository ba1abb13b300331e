package orders

import (
	"bytes"
	_ "embed" // for the file
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
)

//go:generate go run ../internal/generate orders.csv

//go:embed orders.csv
var file []byte

// All returns the orders of the file.
func All() ([]Order, error) { return Read(bytes.NewReader(file)) }

// Read reads orders from CSV with a first line of names.
func Read(r io.Reader) ([]Order, error) {
	c := csv.NewReader(r)
	c.FieldsPerRecord = 5
	if _, err := c.Read(); err != nil {
		return nil, fmt.Errorf("orders: %w", err)
	}
	var list []Order
	for {
		record, err := c.Read()
		if err == io.EOF {
			return list, nil
		}
		if err != nil {
			return nil, fmt.Errorf("orders: %w", err)
		}
		o := Order{ID: record[0], Customer: record[1], SKU: record[2]}
		if o.Quantity, err = strconv.Atoi(record[3]); err == nil {
			o.Cents, err = strconv.ParseInt(record[4], 10, 64)
		}
		if err != nil || o.ID == "" || o.Quantity <= 0 || o.Cents <= 0 {
			line, _ := c.FieldPos(0)
			return nil, fmt.Errorf("orders: line %d is no order: %q", line, record)
		}
		list = append(list, o)
	}
}
