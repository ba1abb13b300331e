package pglocal

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const superuser = "postgres"

// Server is a PostgreSQL server that belongs to this process. Its methods may
// be called from several goroutines.
type Server struct {
	// Version is the major version.
	Version int

	options  Options
	programs programs
	home     *home
	port     int
	password string

	mu      sync.Mutex
	run     *postmaster // the last run, perhaps ended
	stopped bool        // by Stop: the home is no longer ours
}

// Start starts a server, whatever PAWL_DATABASE_URL says. The context bounds
// the start only.
func Start(ctx context.Context, o Options) (*Server, error) {
	a := serverAccount()
	base, err := baseDir(a)
	if err != nil {
		return nil, err
	}
	if err := sweep(base); err != nil && o.Log != nil {
		// What others left behind is no reason not to start.
		fmt.Fprintln(o.Log, err)
	}
	var h *home
	if o.Dir == "" {
		h, err = throwAway(base, a)
	} else {
		h, err = keptHome(o.Dir, a)
	}
	if err != nil {
		return nil, err
	}
	s := &Server{options: o, home: h}
	if err := s.start(ctx); err != nil {
		return nil, h.release(err)
	}
	return s, nil
}

func (s *Server) start(ctx context.Context) error {
	if err := s.home.endOrphan(syscall.SIGINT); err != nil {
		return err
	}
	var err error
	s.programs, err = findPrograms(ctx, s.options, s.home.owner, s.home.major())
	if err != nil {
		return err
	}
	s.Version = s.programs.major
	if err := s.home.initialise(ctx, s.programs, s.options.Durable); err != nil {
		return err
	}
	password, err := os.ReadFile(s.home.passwordFile())
	if err != nil {
		return err
	}
	s.password = string(password)
	for attempt := 1; ; attempt++ {
		if s.port = s.options.Port; s.port == 0 {
			s.port = freePort()
		}
		s.run, err = s.launch(ctx)
		if err == nil || s.options.Port != 0 || attempt == 10 || !errors.Is(err, errPort) {
			return err
		}
	}
}

func (s *Server) launch(ctx context.Context) (*postmaster, error) {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	if err := s.configure(); err != nil {
		return nil, err
	}
	return startPostmaster(ctx, s.home, s.programs, s.options.Log)
}

// configure writes the settings of this start.
func (s *Server) configure() error {
	settings := map[string]string{
		"listen_addresses":        "127.0.0.1",
		"port":                    strconv.Itoa(s.port),
		"unix_socket_directories": "",
		"max_connections":         "200",
		"shared_buffers":          "128MB",
		"timezone":                "UTC",
		"log_timezone":            "UTC",
	}
	if !s.options.Durable {
		settings["fsync"] = "off"
		settings["full_page_writes"] = "off"
	}
	maps.Copy(settings, s.options.Settings)
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&text, "%s = '%s'\n", name, strings.ReplaceAll(settings[name], "'", "''"))
	}
	path := filepath.Join(s.home.data, ourConf)
	return errors.Join(os.WriteFile(path, []byte(text.String()), 0o600), s.home.owner.own(path))
}

// URL is the connection string for one of the server's databases.
func (s *Server) URL(database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(superuser, s.password),
		Host:     s.Addr(),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Addr is the server's host and port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Pid is the postmaster's process id, 0 while the server is down.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run == nil || s.run.ended() {
		return 0
	}
	return s.run.cmd.Process.Pid
}

// Stop shuts the server down fast and removes throw-away data. A second call
// does nothing.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil
	}
	s.stopped = true
	s.run.stop()
	return s.home.release(nil)
}

// Kill ends the postmaster with SIGKILL, and its children. The data stays for
// Restart.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.run.kill()
	}
}

// Restart starts the server again on the same port and data, after a fast
// shutdown if it still runs.
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return errors.New("pglocal: Restart after Stop: the data is given up; use Start")
	}
	s.run.stop()
	run, err := s.launch(ctx)
	if err == nil {
		s.run = run
	}
	return err
}

// freePort picks a port below those that the systems give to outgoing
// connections and to listeners on port 0: while the server is down between
// Kill and Restart, only somebody with our habit could take it.
func freePort() int {
	for range 100 {
		port := 20000 + rand.IntN(12000)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			_ = l.Close()
			return port
		}
	}
	return 0 // PostgreSQL will say that it can't listen there
}
