package load

import (
	"fmt"
	"syscall"
	"time"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
)

// options is what to load a cluster with.
type options struct {
	coordinators, nodes, gpus int
	running, waiting          int
	jobs, clients, batch      int
	rate                      float64
	run, rest                 time.Duration
	watchers, changes         int
	killLeader                bool
	dir                       string
}

// Bounds of options.
const (
	maxNodes    = 100_000
	maxGPUs     = 16
	maxShares   = 3         // jobs on one GPU
	maxKept     = 1_000_000 // jobs that run or wait
	maxJobs     = 10_000_000
	maxClients  = 256
	maxBatch    = 1000
	maxRate     = 100_000
	maxWatchers = 2000
	spareFiles  = 256
)

// check reports the first thing that is wrong with o. A process may have files open at once.
func (o *options) check(files uint64) error {
	for _, f := range []struct {
		flag          string
		v, least, top int
	}{
		{"nodes", o.nodes, 1, maxNodes}, {"gpus", o.gpus, 1, maxGPUs}, {"jobs", o.jobs, 0, maxJobs}, {"clients", o.clients, 1, maxClients},
		{"batch", o.batch, 1, maxBatch}, {"waiting", o.waiting, 0, maxKept - o.running}, {"watchers", o.watchers, 0, maxWatchers}, {"changes", o.changes, 1, 10_000},
	} {
		if f.v < f.least || f.v > f.top {
			return console.Usagef("--%s %d: must be %d to %d", f.flag, f.v, f.least, f.top)
		}
	}
	all := o.nodes * o.gpus
	switch {
	case o.coordinators != 1 && o.coordinators != 3:
		return console.Usagef("--coordinators %d: must be 1, or 3, which survive the loss of one", o.coordinators)
	case o.running < 0 || o.running > min(maxShares*all, maxKept):
		return console.Usagef("--running %d: must be 0 to %d: %d GPUs take %d jobs each; use more --nodes or --gpus", o.running, min(maxShares*all, maxKept), all, maxShares)
	case o.waiting > 0 && o.running < all:
		return console.Usagef("--waiting %d: these jobs wait for whole nodes, and %d of %d GPUs would be free for them; use --running %d or more", o.waiting, all-o.running, all, all)
	case !(o.rate >= 0 && o.rate <= maxRate):
		return console.Usagef("--rate %v: must be 0, as fast as it goes, to %d jobs a second", o.rate, maxRate)
	case o.run < 0 || o.run > time.Hour:
		return console.Usagef("--run %v: must be 0s to 1h", o.run)
	case o.rest < time.Second || o.rest > time.Hour:
		return console.Usagef("--rest %v: must be 1s to 1h", o.rest)
	}
	if need := o.nodes + o.clients + o.watchers + spareFiles; uint64(need) > files {
		return console.Usagef("--nodes %d: needs %d open files, but this process may have %d; raise that with ulimit -n %d", o.nodes, need, files, need)
	}
	return nil
}

// openFiles returns how many files this process may have open.
func openFiles() (uint64, error) {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0, fmt.Errorf("limit of open files: %w", err)
	}
	return l.Max, nil // what Go raised its own limit to, and starts others with
}
