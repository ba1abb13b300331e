package engine

import (
	"runtime/debug"
	"testing"
)

func TestBuiltFrom(t *testing.T) {
	t.Parallel()
	vcs := []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef0123"}, {Key: "vcs.modified", Value: "true"}}
	shop := func(version string) debug.Module { return debug.Module{Path: "example.com/shop", Version: version} }
	dep := func(version string) []*debug.Module {
		return []*debug.Module{{Path: "other"}, {Path: ownPath, Version: version}}
	}
	for name, c := range map[string]struct {
		info          *debug.BuildInfo
		program, pawl string
	}{
		"nothing":   {nil, "unknown", "unknown"},
		"a release": {&debug.BuildInfo{Main: shop("v1.2.3"), Deps: dep("v0.9.0"), Settings: vcs}, "example.com/shop v1.2.3", "v0.9.0"},
		"a command": {&debug.BuildInfo{Path: "example.com/shop/cmd/worker", Main: shop("v1.2.3")}, "example.com/shop/cmd/worker v1.2.3", "unknown"},
		"a clone":   {&debug.BuildInfo{Main: shop("(devel)"), Deps: dep("v0.9.0"), Settings: vcs}, "example.com/shop 0123456789ab+dirty", "v0.9.0"},
		"no vcs":    {&debug.BuildInfo{Main: shop("(devel)")}, "example.com/shop unknown", "unknown"},
		"our own":   {&debug.BuildInfo{Main: debug.Module{Path: ownPath, Version: "v1.0.0"}}, ownPath + " v1.0.0", "v1.0.0"},
		"replaced": {&debug.BuildInfo{Main: shop("v1.0.0"), Deps: []*debug.Module{{Path: ownPath, Version: "v0.9.0", Replace: &debug.Module{Path: "../pawl"}}}},
			"example.com/shop v1.0.0", "(replaced)"},
	} {
		if program, pawl := builtFrom(c.info); program != c.program || pawl != c.pawl {
			t.Errorf("%s: %q, %q; not %q, %q", name, program, pawl, c.program, c.pawl)
		}
	}
}
