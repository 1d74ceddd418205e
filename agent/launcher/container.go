package launcher

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// Networks configures what a node's jobs see of its network.
type Networks struct {
	// Default is for jobs that do not choose; "" means cluster.NetHost.
	Default cluster.Network
	// Allowed are those that jobs may choose; empty means Default and cluster.NetNone,
	// which takes from a job only what is its own to give up.
	Allowed []cluster.Network
}

// give returns the network of a job that asks for asked, or an error that says what is
// allowed and by which setting.
func (n Networks) give(asked cluster.Network) (cluster.Network, error) {
	std := n.Default
	if std == "" {
		std = cluster.NetHost
	}
	if asked == "" {
		return std, nil
	}
	allowed := n.Allowed
	if len(allowed) == 0 {
		allowed = []cluster.Network{std, cluster.NetNone}
	}
	if slices.Contains(allowed, asked) {
		return asked, nil
	}
	return "", fmt.Errorf("%s is not allowed on this node, which gives its jobs %s (containers.networks in its agent.yaml); ask for that with --net, or for another node or partition", asked, allowed[0])
}

// contain adds what a job asks of its container. Apart from the network, the runtime judges
// what it may have.
func (la *Launcher) contain(l *launch.Launch, as *nodev1.Assignment) error {
	c := conv.ContainerFromNode(as.Container)
	var err error
	if l.Network, err = la.cfg.Networks.give(c.Network); err != nil {
		return &launch.Error{Code: 125, Reason: "NETWORK", Err: err}
	}
	l.ReadOnlyRoot, l.TmpBytes, l.ShmBytes = c.ReadOnly, c.TmpMiB<<20, c.ShmMiB<<20
	for _, m := range c.Mounts {
		l.Mounts = append(l.Mounts, launch.Mount{Source: m.Source, Target: m.Target, ReadOnly: m.ReadOnly})
	}
	if l.Image != "" {
		l.Env = slices.DeleteFunc(l.Env, func(line string) bool { return strayTmpdir(line, l.Mounts) })
	}
	return nil
}

// placeData tells a job where the data sets are that it reads and the node has. An image
// job sees each at its place on the node, read-only, unless it mounts something else there.
func (la *Launcher) placeData(l *launch.Launch, as *nodev1.Assignment) {
	if la.cfg.Data == nil {
		return
	}
	for _, name := range as.Data {
		dir := la.cfg.Data(name)
		if dir == "" {
			continue
		}
		l.Env = append(l.Env, cluster.DataEnv(name)+"="+dir)
		if l.Image != "" && !slices.ContainsFunc(l.Mounts, func(m launch.Mount) bool { return path.Clean(m.Target) == dir }) {
			l.Mounts = append(l.Mounts, launch.Mount{Source: dir, Target: dir, ReadOnly: true, Own: true})
		}
	}
}

// strayTmpdir reports whether a variable sends an image job's temporary files to a
// directory of the submitting host that the image lacks: every use of one would fail,
// although /tmp exists.
func strayTmpdir(line string, mounts []launch.Mount) bool {
	dir, ok := strings.CutPrefix(line, "TMPDIR=")
	if !ok {
		return false
	}
	dir = path.Clean(dir)
	in := func(top string) bool { return dir == top || strings.HasPrefix(dir, top+"/") }
	return dir != "/tmp" && !in("/dev/shm") && !slices.ContainsFunc(mounts, func(m launch.Mount) bool { return in(path.Clean(m.Target)) })
}
