package daemon

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/user"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/gpu/nvml"
	"github.com/berth-scheduler/berth/agent/gpu/nvmlproc"
	"github.com/berth-scheduler/berth/agent/gpu/owner"
	"github.com/berth-scheduler/berth/cmd/internal/config"
)

// libraryPath is the only variable of the agent's environment passed to the
// driver's process: on some systems the library is only found through it.
const libraryPath = "LD_LIBRARY_PATH"

// openNVML reaches the driver through a process of this same program. The
// owners of processes on the GPUs are known if jobs have control groups.
func openNVML(ctx context.Context, cfg *config.Agent, log *slog.Logger) (gpu.Provider, error) {
	nc := nvmlproc.Config{
		// Not by its path: after an upgrade another program may be there.
		Command: []string{"/proc/self/exe", "agent", "nvml"},
		// A small process, which waits most of the time.
		Env: []string{"GOMAXPROCS=2"},
		Log: log,
	}
	if dirs, ok := os.LookupEnv(libraryPath); ok {
		nc.Env = append(nc.Env, libraryPath+"="+dirs)
	}
	if os.Geteuid() == 0 {
		nc.Owners = owner.New(owner.Config{Parent: cfg.Cgroup.Parent, User: accountName}).Mark
	}
	p, err := nvmlproc.Open(ctx, nc)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// accountName returns the name of an account, "" if it has none.
func accountName(uid uint32) string {
	u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return ""
	}
	return u.Username
}

// newNVMLCommand queries the driver on behalf of the agent, which starts it
// and abandons it when a call hangs.
func newNVMLCommand() *cobra.Command {
	return &cobra.Command{
		Use: "nvml", Short: "Ask the NVIDIA driver (started by the agent)", Hidden: true, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			debug.SetGCPercent(50) // memory matters more than time here
			log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
			err := nvmlproc.Main(os.Stdin, os.Stdout, os.Stderr, func() (nvmlproc.Driver, error) {
				d, err := nvml.New(nvml.Config{Log: log})
				if err != nil {
					return nil, err
				}
				rest(log)
				return d, nil
			}, log)
			if errors.Is(err, gpu.ErrNoDriver) {
				return nil // the agent was told, and reports it
			}
			return err
		},
	}
}

// restAfter is when an agent has started and adopted running jobs.
const restAfter = 15 * time.Second

// rest shrinks the process after its start, for the long time in which it has
// little to do.
func rest(log *slog.Logger) {
	debug.FreeOSMemory()
	if err := trim(); err != nil {
		log.Debug("cannot give memory back", "err", err)
	}
}
