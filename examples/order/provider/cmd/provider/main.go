// Command provider runs the order example's payment provider by itself.
package main

import (
	"os"

	"github.com/pawlworks/pawl/examples/order/provider"
)

func main() {
	os.Exit(provider.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
