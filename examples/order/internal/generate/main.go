// Command generate writes the order example's file of orders: always the same.
package main

import (
	"bytes"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
)

const (
	count     = 1200
	customers = 300
	articles  = 24
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: generate FILE")
	}
	chance := rand.New(rand.NewPCG(1, 2))
	var prices [articles]int64
	for i := range prices {
		prices[i] = 195 + 50*chance.Int64N(400)
	}
	var out bytes.Buffer
	fmt.Fprintln(&out, "id,customer,sku,quantity,cents")
	for n := range count {
		article, quantity := chance.IntN(articles), 1+chance.IntN(4)
		fmt.Fprintf(&out, "order-%04d,customer-%04d,sku-%02d,%d,%d\n",
			n+1, 1+chance.IntN(customers), article+1, quantity, int64(quantity)*prices[article])
	}
	if err := os.WriteFile(os.Args[1], out.Bytes(), 0o644); err != nil {
		log.Fatal(err)
	}
}
