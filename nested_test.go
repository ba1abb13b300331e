package pawl_test

import (
	"os/exec"
	"testing"
)

// TestModules looks at the modules that are not part of this one, so that what
// they are built from stays out of what users get: alerts and dashboard are
// tested with Prometheus itself, and the bench must build. (What is outside of a
// module is nothing to the cache of its tests.)
func TestModules(t *testing.T) {
	if testing.Short() {
		t.Skip("builds Prometheus' and the peers' code")
	}
	for dir, args := range map[string][]string{"internal/alerts": {"test", "-count=1", "./..."}, "bench": {"vet", "./..."}} {
		t.Run(dir, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "go", args...)
			cmd.Dir = dir
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
