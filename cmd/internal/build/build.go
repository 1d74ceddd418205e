// Package build reports a program's release, and what the Go tool recorded in it.
package build

import (
	"runtime"
	"runtime/debug"
)

// Version is the release of this tree, or the next one made from it.
const Version = "v0.1.0"

// Facts identify this program.
type Facts struct {
	Version  string // the release
	Revision string // commit; "" if the Go tool recorded none
	Modified bool   // since that commit
	Go       string
}

// Info returns the release, and what the Go tool recorded.
func Info() Facts {
	b := Facts{Version: Version, Go: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// String identifies this program to members of a cluster: the release and, if
// recorded, the commit, as v0.1.0+0123456789ab.
func (b Facts) String() string {
	if b.Revision == "" {
		return b.Version
	}
	return b.Version + "+" + b.Revision[:min(12, len(b.Revision))]
}
