package pglocal

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// commandLine returns a process's arguments separated by spaces, "" if there
// is no such process or only its remains.
func commandLine(pid int) string {
	if hasProc {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return strings.TrimSpace(strings.ReplaceAll(string(text), "\x00", " "))
	}
	out, _ := exec.Command("ps", "-ww", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	return strings.TrimSpace(string(out))
}

var hasProc = func() bool {
	_, err := os.Stat("/proc/self/stat")
	return err == nil
}()

// children lists a process's direct children. A postmaster's are all there
// are: backends and workers start none.
func children(parent int) []int {
	if !hasProc {
		out, _ := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output()
		var found []int
		for line := range strings.Lines(string(out)) {
			var pid, ppid int
			if n, _ := fmt.Sscan(line, &pid, &ppid); n == 2 && ppid == parent {
				found = append(found, pid)
			}
		}
		return found
	}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	var found []int
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // ended meanwhile
		}
		// pid (name) state ppid …; the name may hold anything, even ")".
		rest := string(text[strings.LastIndexByte(string(text), ')')+1:])
		fields := strings.Fields(rest)
		if len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			found = append(found, pid)
		}
	}
	return found
}

// killTree kills a postmaster and its children. It is stopped first, so that
// no child is forked between the look and the kill. (Children would end by
// themselves, but one that is busy looks at its parent only when it waits.)
func killTree(pid int) {
	_ = sendSignal(pid, sigStop)
	victims := children(pid)
	_ = sendSignal(pid, syscall.SIGKILL)
	for _, child := range victims {
		_ = sendSignal(child, syscall.SIGKILL)
	}
}
