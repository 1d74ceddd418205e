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

// libraryPath is the one variable of the agent's environment that the driver's
// process gets: some systems keep the library where only that leads.
const libraryPath = "LD_LIBRARY_PATH"

// openNVML reaches the driver through a process of this same program. Whose
// the processes on the cards are is known where jobs have control groups.
func openNVML(ctx context.Context, cfg *config.Agent, log *slog.Logger) (gpu.Provider, error) {
	nc := nvmlproc.Config{
		// Not by its path: an upgrade may have put another program there.
		Command: []string{"/proc/self/exe", "agent", "nvml"},
		// A small process: one that waits most of the time.
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

// accountName is the name of an account, "" when it has none.
func accountName(uid uint32) string {
	u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return ""
	}
	return u.Username
}

// newNVMLCommand asks the driver on behalf of the agent, which starts it and
// gives it up when a call does not come back.
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
				return nil // the agent was told, and says so
			}
			return err
		},
	}
}

// restAfter is when an agent has started and adopted what runs.
const restAfter = 15 * time.Second

// rest makes the process small after it started, for the long time in which it
// has little to do.
func rest(log *slog.Logger) {
	debug.FreeOSMemory()
	if err := trim(); err != nil {
		log.Debug("cannot give memory back", "err", err)
	}
}
