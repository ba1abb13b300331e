package pglocal

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// watchScript outlives us if we are killed. It reads the server's process id,
// then waits for a word that says all is well, or for the end of the pipe,
// which says that its owner is dead. $1 is the signal that stops the server,
// $2 the home to remove, if it is a throw-away.
const watchScript = `
read -r pid || exit 0
read -r word && exit 0
kill -"$1" "$pid" 2>/dev/null
n=0
while kill -0 "$pid" 2>/dev/null && [ "$n" -lt 400 ]; do
	n=$((n + 1))
	[ "$n" -eq 200 ] && kill -QUIT "$pid" 2>/dev/null
	[ "$n" -eq 300 ] && kill -KILL "$pid" 2>/dev/null
	sleep 0.1
done
[ -z "$2" ] || rm -rf "$2"
`

// watchdog is the shell that stops the server when its owner dies. It is
// started before the server: killed in between, we leave nothing behind.
type watchdog struct {
	cmd  *exec.Cmd
	pipe *os.File // the only write end there is
}

func startWatchdog(h *home) (*watchdog, error) {
	signal, remove := "INT", ""
	if !h.keep {
		signal, remove = "QUIT", h.dir
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("/bin/sh", "-c", watchScript, "pawl-pg-watchdog", signal, remove)
	cmd.Stdin = r
	cmd.Dir = "/"
	detach(cmd, account{}) // as ourselves: it must be able to remove the home
	err = cmd.Start()
	if err = errors.Join(err, r.Close()); err != nil {
		return nil, errors.Join(fmt.Errorf("pglocal: start the watchdog: %w", err), w.Close())
	}
	return &watchdog{cmd: cmd, pipe: w}, nil
}

func (w *watchdog) watch(pid int) error {
	_, err := fmt.Fprintln(w.pipe, pid)
	return err
}

// dismiss ends the watchdog without any deed: the server has ended, or there
// never was one.
func (w *watchdog) dismiss() {
	_, _ = fmt.Fprint(w.pipe, "0\ndone\n")
	_ = w.pipe.Close()
	_ = w.cmd.Wait()
}
