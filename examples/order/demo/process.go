package demo

import (
	"fmt"
	"os"
	"os/exec"

	"github.com/pawlworks/pawl/examples/order/provider"
)

// childArg makes a program that calls Child the provider.
const childArg = "pawl-example-provider"

// Child is the provider if this process was started to be it: then ok is true,
// it has ended, and the program exits with the code. Call it first in main, and
// no binary has to be built for the provider.
func Child() (code int, ok bool) {
	if len(os.Args) < 2 || os.Args[1] != childArg {
		return 0, false
	}
	return provider.Main(os.Args[2:], os.Stdin, os.Stdout, os.Stderr), true
}

// Provider starts the provider in a process of its own, which ends with this
// one. More arguments are those of provider.Main.
func Provider(ledger string, args ...string) (*provider.Process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program, append([]string{childArg, "-tied", "-ledger", ledger,
		"-seed", fmt.Sprint(Seed), "-delay", lookupDelay.String()}, args...)...)
	cmd.Stderr = os.Stderr
	return provider.Start(cmd)
}
