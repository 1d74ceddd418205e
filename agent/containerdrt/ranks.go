package containerdrt

import (
	"fmt"
	"github.com/berth-scheduler/berth/agent/jobside"
	"path"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/berth-scheduler/berth/agent"
)

// imageLoader is where our own binary's loader lies in an image job that runs
// several processes, beside the libraries: the image has its own, of whatever
// kind, and keeps them.
const imageLoader = probeLib + "/ld.so"

// imageArgs is the argument vector of an image job, and what must be mounted for
// it: with several processes our own binary runs them. It is called through its
// own loader, since an image may have none or another.
func (r *Runtime) imageArgs(l *agent.Launch) (args []string, mounts []specs.Mount, err error) {
	if l.Ranks == nil {
		return l.Args, nil, nil
	}
	libs, err := libraries(r.cfg.Logger)
	if err != nil {
		return nil, nil, fmt.Errorf("find the libraries of %s: %w", r.cfg.Logger, err)
	}
	mount := func(at, from string) {
		mounts = append(mounts, specs.Mount{Destination: at, Type: "bind", Source: from, Options: []string{"bind", "ro", "nosuid", "nodev"}})
	}
	args = l.RankArgs(jobside.Binary)
	for at, from := range libs {
		if !strings.HasPrefix(at, probeLib+"/") {
			at = imageLoader
			args = append([]string{imageLoader, "--library-path", path.Dir(imageLoader)}, args...)
		}
		mount(at, from)
	}
	mount(jobside.Binary, r.cfg.Logger)
	return args, mounts, nil
}
