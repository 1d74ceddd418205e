package backupcmd

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/config"
	"github.com/berth-scheduler/berth/coordinator/backup"
	"github.com/berth-scheduler/berth/coordinator/raftnode"
	"github.com/berth-scheduler/berth/fsm"
)

// skipJobs is more ids than most clusters assign between two backups.
const skipJobs = 10_000

type restoreOptions struct {
	config, data string
	skip         uint64
}

func newRestoreCmd(e *console.Env) *cobra.Command {
	var o restoreOptions
	cmd := &cobra.Command{
		Use: "restore FILE", Short: "Restore this coordinator's data from a snapshot",
		Long: "Restore this coordinator's data directory from a snapshot. No coordinator of the cluster may be running,\n" +
			"and the directory must be empty or missing. Run it on every coordinator with the same FILE, then start\n" +
			"them; docs/backups.md has the steps. Whatever happened after FILE was saved is lost: agents end jobs that\n" +
			"FILE does not know, and ids that may have been given to such jobs are skipped (--skip-jobs).",
		Example: "  berth cluster snapshot restore /var/backups/berth.snap\n" +
			"  berth cluster snapshot restore berth.snap --config /etc/berth/coordinator.yaml --data /var/lib/berth/coordinator",
		Args: console.OneArg("file"),
		RunE: func(_ *cobra.Command, args []string) error { return runRestore(e, args[0], &o) },
	}
	fs := cmd.Flags()
	fs.StringVar(&o.config, "config", "/etc/berth/coordinator.yaml", "this coordinator's configuration `FILE`, for the names of it, its cluster and the other coordinators")
	fs.StringVar(&o.data, "data", "", "data `DIR`, by default the configuration's data.dir")
	fs.Uint64Var(&o.skip, "skip-jobs", skipJobs, "skip this many job `IDS`: more than were submitted since FILE was saved, and the same on every coordinator")
	fs.SortFlags = false
	return cmd
}

func runRestore(e *console.Env, path string, o *restoreOptions) error {
	l, err := config.LoadCoordinator(config.Sources{Path: o.config, Env: e.Environ()})
	if err != nil {
		return err
	}
	cfg := l.Config
	o.data = cmp.Or(o.data, cfg.Data.Dir)
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, _, err := check(f); err != nil {
		return err
	}
	h, state, err := backup.Load(f, &fsm.Revival{SkipJobs: o.skip})
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if h.ClusterID != cfg.Cluster.ID {
		return fmt.Errorf("%s belongs to cluster %q, %s to cluster %q; name the matching configuration", path, h.ClusterID, o.config, cfg.Cluster.ID)
	}
	owner, err := ownerOf(o.data)
	if err != nil {
		return err
	}
	r := raftnode.Restored{Dir: o.data, ClusterID: cfg.Cluster.ID, ID: cfg.ID, Index: h.Index, Term: h.Term, State: state.Write}
	for _, p := range cfg.Peers {
		r.Servers = append(r.Servers, raftnode.Server{ID: p.ID, Addr: p.Addr})
	}
	if err := raftnode.Restore(r); err != nil {
		return err
	}
	if err := owner.give(o.data); err != nil {
		return err
	}
	e.Printf("Restored %s: coordinator %s of cluster %s (%d in all), the next job is %d\n", console.Escape(o.data), cfg.ID, h.ClusterID, len(cfg.Peers), state.NextJob)
	e.Printf("Join tokens from then are void. Certificates revoked after %s are no longer revoked: revoke them again (berth deny).\n", h.Saved.Format(time.RFC3339))
	return nil
}

// owner is the future owner of the files in a directory.
type owner struct{ uid, gid int }

// ownerOf returns the owner of a directory, or of its nearest existing
// parent: the coordinator, unlike the restoring user, does not run as root.
func ownerOf(path string) (owner, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return owner{}, err
	}
	for {
		info, err := os.Stat(path)
		if err == nil {
			st := info.Sys().(*syscall.Stat_t)
			return owner{int(st.Uid), int(st.Gid)}, nil
		}
		if !errors.Is(err, fs.ErrNotExist) || path == "/" {
			return owner{}, err
		}
		path = filepath.Dir(path)
	}
}

// give changes the owner of everything in dir, if permitted, and of nothing
// outside it: the owner may replace its content with links meanwhile.
func (o owner) give(dir string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return root.Lchown(p, o.uid, o.gid)
	})
}
