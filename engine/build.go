package engine

import (
	"os"
	"runtime/debug"
	"strings"

	"github.com/pawlworks/pawl/internal/db"
)

const ownPath = "github.com/pawlworks/pawl"

// builtFrom is what the process's program and Pawl in it were built from: a
// module's version, or else the revision; "unknown" where the build tells neither.
func builtFrom(info *debug.BuildInfo) (program, pawl string) {
	if info == nil {
		return "unknown", "unknown"
	}
	if program = info.Path; program == "" || program == "command-line-arguments" { // go run of files
		program = info.Main.Path
	}
	program += " " + versionOf(info.Main, info.Settings)
	pawl = "unknown"
	if info.Main.Path == ownPath {
		pawl = versionOf(info.Main, info.Settings)
	}
	for _, m := range info.Deps {
		if m.Path != ownPath {
			continue
		}
		if pawl = m.Version; m.Replace != nil {
			pawl = strings.TrimSpace(m.Replace.Version + " (replaced)")
		}
	}
	return clean(strings.TrimSpace(program), 200), clean(pawl, 100)
}

func versionOf(main debug.Module, settings []debug.BuildSetting) string {
	if main.Version != "" && main.Version != "(devel)" {
		return main.Version
	}
	revision, changed := "", ""
	for _, s := range settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = "+dirty"
		}
	}
	if revision == "" {
		return "unknown"
	}
	return revision + changed
}

// session is what a session's row tells of the process, for people.
func (e *Engine) session() db.OpenSessionParams {
	info, _ := debug.ReadBuildInfo()
	p := db.OpenSessionParams{Name: e.config.Name, TtlMs: ms(e.config.Session), Pid: int32(os.Getpid())}
	p.Build, p.Pawl = builtFrom(info)
	host, _ := os.Hostname()
	p.Host = clean(host, 200)
	return p
}
