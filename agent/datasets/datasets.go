// Package datasets finds the data sets on a node's disks that its site declares, so that
// jobs that read them can be sent there and told where they are.
package datasets

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
)

// Most is how many data sets a node tells of; the first ones by name if it has more.
const Most = 32

// every is the time from one look at the disks to the next.
const every = 30 * time.Second

// allOf marks a folder whose subfolders are data sets.
const allOf = "/*"

// Parse splits an entry of the configuration: NAME=/path is one data set, /path/* has one
// in each of its folders, and no name of its own.
func Parse(entry string) (name, dir string, err error) {
	name, dir, named := strings.Cut(entry, "=")
	if !named {
		var all bool
		if dir, all = strings.CutSuffix(entry, allOf); !all {
			return "", "", fmt.Errorf("is %.80q, want NAME=/path, or /path/* for all folders in /path", entry)
		}
		return "", dir, nil
	}
	return name, dir, cluster.CheckDataName(name)
}

// Sets are the data sets of a node. It is safe for concurrent use; nil has none.
type Sets struct {
	entries []string
	uid     uint32 // who, besides root, may own a folder of data sets
	changed chan struct{}

	mu   sync.Mutex
	held map[string]string
}

// New returns those of the configuration's entries; they are found by Run.
func New(entries []string) *Sets {
	return &Sets{entries: entries, uid: uint32(os.Geteuid()), changed: make(chan struct{}, 1)} // #nosec G115 -- uids have 32 bits
}

// Run looks at the disks again and again until ctx ends. It may hang with a disk, and
// nothing else does.
func (s *Sets) Run(ctx context.Context) error {
	if len(s.entries) == 0 {
		return nil
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		s.Look()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// Look finds out what is there now.
func (s *Sets) Look() {
	found := map[string]string{}
	add := func(name, dir string) {
		if found[name] == "" && len(found) < Most && cluster.CheckDataName(name) == nil {
			found[name] = dir
		}
	}
	var folders []string
	for _, e := range s.entries {
		name, dir, err := Parse(e)
		switch {
		case err != nil:
		case name == "":
			folders = append(folders, dir)
		default:
			if info, err := os.Stat(dir); err == nil && info.IsDir() {
				add(name, dir)
			}
		}
	}
	for _, dir := range folders {
		if !s.keeps(dir) {
			continue
		}
		list, err := os.ReadDir(dir) // sorted
		if err != nil {
			continue
		}
		for _, one := range list {
			if one.IsDir() {
				add(one.Name(), filepath.Join(dir, one.Name()))
			}
		}
	}
	s.mu.Lock()
	same := maps.Equal(found, s.held)
	s.held = found
	s.mu.Unlock()
	if same {
		return
	}
	wait.Poke(s.changed)
}

// keeps reports whether only root or the agent's own user may put anything into a
// folder. Otherwise a user could put a link there, and have jobs in images see what it
// points to.
func (s *Sets) keeps(dir string) bool {
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() || info.Mode().Perm()&0o022 != 0 {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && (st.Uid == 0 || st.Uid == s.uid)
}

// Changed receives when the node has other data sets than before.
func (s *Sets) Changed() <-chan struct{} {
	if s == nil {
		return nil
	}
	return s.changed
}

// Path returns where a data set is on this node, "" if it is not.
func (s *Sets) Path(name string) string {
	if s == nil {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[name]
}

// With returns features with those that name the data sets, as many as a node may have.
func (s *Sets) With(features []string) []string {
	if s == nil {
		return features
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := slices.Clone(features)
	for _, name := range slices.Sorted(maps.Keys(s.held)) {
		if f := cluster.DataFeature + name; len(out) < cluster.MaxNodeFeatures && !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	slices.Sort(out)
	return out
}
