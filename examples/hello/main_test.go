package main

import (
	"os"
	"strings"
	"testing"
)

// The README shows this program as it is.
func TestReadme(t *testing.T) {
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), "```go\n"+string(program)+"```") {
		t.Error("the README's program is not examples/hello/main.go")
	}
}

// It runs alone.
func Example() {
	main()
	// Output: hello WORLD
}
