package console

import (
	"runtime"

	"github.com/berth-scheduler/berth/cmd/internal/build"
)

type versionView struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// Version returns this program's release, and what the Go tool recorded in it.
func Version() versionView {
	b := build.Info()
	return versionView{Version: b.Version, Revision: b.Revision, Modified: b.Modified, Go: b.Go, Platform: runtime.GOOS + "/" + runtime.GOARCH}
}
