package steps

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

const maxName = 200 // bytes

// checkName refuses what can't name a workflow or a step: their places are
// written as paths like each[12]/step#3.
func checkName(name string) error {
	if err := checkLabel(name); err != nil {
		return err
	}
	if i := strings.IndexAny(name, "/[]#"); i >= 0 {
		return fmt.Errorf("the name holds a %q, which paths use", name[i])
	}
	return nil
}

// checkLabel refuses what can't even name a queue or an owner.
func checkLabel(name string) error {
	switch {
	case name == "":
		return errors.New("the name is empty")
	case !utf8.ValidString(name):
		return errors.New("the name is not valid UTF-8")
	case len(name) > maxName:
		return fmt.Errorf("the name has %d bytes, more than %d", len(name), maxName)
	case strings.TrimSpace(name) != name:
		return errors.New("the name begins or ends with a space")
	}
	for _, r := range name {
		if unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp) {
			return fmt.Errorf("the name holds the control character %U", r)
		}
	}
	return nil
}

// checkDuration refuses durations that mean nothing, and those that were
// written without a unit: Lease(60) would be sixty nanoseconds.
func checkDuration(d time.Duration) error {
	if d < time.Millisecond {
		return fmt.Errorf("must be at least a millisecond, is %v", d)
	}
	return nil
}
