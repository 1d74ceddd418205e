package backupcmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/coordinator/history"
	"github.com/berth-scheduler/berth/coordinator/raftnode"
	"github.com/berth-scheduler/berth/fsm"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

const (
	defaultDir = "/var/lib/berth/coordinator"
	logLimit   = 100
)

// NewCoordinatorCmd returns the parts of the command coordinator that inspect
// and repair the directory of a stopped coordinator.
func NewCoordinatorCmd(e *console.Env) *cobra.Command {
	cmd := &cobra.Command{Use: "coordinator", Short: "Inspect and repair the data of a stopped coordinator", Example: "  berth coordinator verify"}
	cmd.AddCommand(newLogCmd(e), newVerifyCmd(e), newRecoverCmd(e))
	return cmd
}

// withDir runs an operation on a stopped coordinator's directory.
func withDir(dir string, run func(*raftnode.Offline) error) (err error) {
	o, err := raftnode.OpenOffline(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	return run(o)
}

func newLogCmd(e *console.Env) *cobra.Command {
	var dir string
	var from uint64
	var limit int
	cmd := &cobra.Command{
		Use: "log", Short: "Show the log of a stopped coordinator", Args: console.NoArgs,
		Long:    "Show the log of a stopped coordinator: the type of the commands in each entry, not their contents.",
		Example: "  berth coordinator log --from 8812034 --limit 20",
		RunE: func(*cobra.Command, []string) error {
			if limit < 1 {
				return console.Usagef("--limit %d: must be at least 1", limit)
			}
			return withDir(dir, func(o *raftnode.Offline) error { return showLog(e, o, from, limit) })
		},
	}
	cmd.Flags().StringVar(&dir, "dir", defaultDir, "the coordinator's data `DIR`")
	cmd.Flags().Uint64Var(&from, "from", 0, "start at the entry with this `INDEX`; 0 for the oldest")
	cmd.Flags().IntVar(&limit, "limit", logLimit, "show at most this many entries")
	return cmd
}

var errEnough = errors.New("enough")

func showLog(e *console.Env, o *raftnode.Offline, from uint64, limit int) error {
	t := console.Table{Cols: []console.Column{{Head: "INDEX", Right: true}, {Head: "TERM", Right: true}, {Head: "TIME"}, {Head: "BYTES", Right: true}, {Head: "COMMANDS", Shrink: true}}}
	err := o.Entries(from, func(l raftnode.Entry) error {
		if len(t.Rows) == limit {
			return errEnough
		}
		at, what := "-", l.Type
		switch {
		case l.Skipped != "":
			what = "skipped by an administrator: " + l.Skipped
		case l.Command:
			at, what = commandsOf(l.Data)
		}
		t.Add(strconv.FormatUint(l.Index, 10), strconv.FormatUint(l.Term, 10), at, strconv.Itoa(len(l.Data)), what)
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return err
	}
	t.Print(e)
	first, last, snapshot := o.Holds()
	e.Warnf("entries %d to %d; the newest snapshot ends at %d", first, last, snapshot)
	return nil
}

// commandsOf returns when an entry was proposed and the kinds of its commands.
func commandsOf(data []byte) (at, kinds string) {
	entry, err := fsm.DecodeEntry(data)
	if err != nil {
		return "-", "cannot be read: " + err.Error()
	}
	var names []string
	count := map[string]int{}
	for _, c := range entry.Commands {
		name := kindOf(c)
		if count[name]++; count[name] == 1 {
			names = append(names, name)
		}
	}
	for i, n := range names {
		if count[n] > 1 {
			names[i] = fmt.Sprintf("%s x%d", n, count[n])
		}
	}
	return cluster.Time(entry.NowUs).Std().UTC().Format(time.RFC3339), strings.Join(names, ", ")
}

// kindOf returns the name of a command in the log's schema.
func kindOf(c *logv1.Command) string {
	m := c.ProtoReflect()
	if f := m.WhichOneof(m.Descriptor().Oneofs().ByName("kind")); f != nil {
		return string(f.Name())
	}
	return "unknown"
}

func newVerifyCmd(e *console.Env) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "verify", Short: "Verify the data directory of a stopped coordinator", Args: console.NoArgs,
		Long: "Verify the data directory of a stopped coordinator, or a copy of it: every log entry, the newest snapshot\n" +
			"and the history, each byte against its checksum, and that this program can read all of it. Nothing is\n" +
			"changed. Exits with 0 if all is well.",
		Example: "  berth coordinator verify --dir /var/lib/berth/coordinator",
		RunE: func(*cobra.Command, []string) error {
			return withDir(dir, func(o *raftnode.Offline) error { return verify(e, dir, o) })
		},
	}
	cmd.Flags().StringVar(&dir, "dir", defaultDir, "the coordinator's data `DIR`")
	return cmd
}

func verify(e *console.Env, dir string, o *raftnode.Offline) error {
	first, last, snapshot := o.Holds()
	if snapshot > 0 {
		rc, err := o.Snapshot()
		if err != nil {
			return err
		}
		if err := fsm.New(fsm.Options{}).Restore(rc); err != nil { // which closes it
			return fmt.Errorf("the snapshot that ends at %d cannot be restored: %w", snapshot, err)
		}
	}
	n := 0
	err := o.Entries(snapshot+1, func(l raftnode.Entry) error {
		if !l.Command {
			return nil
		}
		n++
		if _, err := fsm.DecodeEntry(l.Data); err != nil {
			return fmt.Errorf("log entry %d: %w", l.Index, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	jobs, err := history.Verify(filepath.Join(dir, "history"))
	if err != nil {
		return err
	}
	e.Printf("Log:       entries %d to %d, of which %d come after the snapshot and hold commands\nSnapshot:  ends at %d\nHistory:   %d jobs\n", first, last, n, snapshot, jobs)
	lines, err := raftnode.Skipped(dir)
	for _, l := range lines {
		e.Printf("Skipped:   %s\n", console.Escape(l))
	}
	return err
}

type recoverOptions struct {
	dir, peers       string
	skip             uint64
	everywhere, last bool
}

func newRecoverCmd(e *console.Env) *cobra.Command {
	var o recoverOptions
	cmd := &cobra.Command{
		Use: "recover", Short: "Repair the data of a stopped coordinator by hand", Args: console.NoArgs,
		Long: "Repair the data directory of a stopped coordinator by hand; docs/recovery.md says when and how.\n" +
			"\n" +
			"--skip-entry replaces a log entry that no coordinator can get past with one that does nothing. What the\n" +
			"entry asked for is lost. Do this on every coordinator before you start any of them again.\n" +
			"\n" +
			"--peers makes the coordinators in FILE the only members, for when most of the others are lost for good.\n" +
			"FILE is a JSON list such as [{\"id\": \"c1\", \"address\": \"10.0.0.1:7070\"}].",
		Example: "  berth coordinator recover --skip-entry 8812034 --i-skip-it-on-every-coordinator\n" +
			"  berth coordinator recover --peers peers.json --i-know-the-others-are-lost",
		RunE: func(*cobra.Command, []string) error { return runRecover(e, &o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.dir, "dir", defaultDir, "the coordinator's data `DIR`")
	f.Uint64Var(&o.skip, "skip-entry", 0, "skip the entry with this `INDEX`")
	f.BoolVar(&o.everywhere, "i-skip-it-on-every-coordinator", false, "required by --skip-entry")
	f.StringVar(&o.peers, "peers", "", "JSON `FILE` with the only members from now on")
	f.BoolVar(&o.last, "i-know-the-others-are-lost", false, "required by --peers")
	f.SortFlags = false
	return cmd
}

func runRecover(e *console.Env, o *recoverOptions) error {
	switch {
	case (o.skip == 0) == (o.peers == ""):
		return console.Usagef("give --skip-entry or --peers")
	case o.skip != 0 && !o.everywhere:
		return console.Usagef("--skip-entry loses what the entry asked for, and coordinators that do not skip it diverge: add --i-skip-it-on-every-coordinator")
	case o.peers != "" && !o.last:
		return console.Usagef("--peers splits the cluster in two if the others still run: add --i-know-the-others-are-lost")
	}
	owner, err := ownerOf(o.dir)
	if err != nil {
		return err
	}
	err = withDir(o.dir, func(d *raftnode.Offline) error {
		if o.skip != 0 {
			note, err := d.Skip(o.skip, time.Now())
			if err == nil {
				e.Printf("Skipped %s. Every coordinator must print the same line before one is started.\n", note)
			}
			return err
		}
		servers, err := readPeers(o.peers)
		if err != nil {
			return err
		}
		if err := d.Recover(fsm.New(fsm.Options{}), servers); err != nil {
			return err
		}
		e.Printf("Recovered %s: %d members from now on\n", console.Escape(o.dir), len(servers))
		return nil
	})
	return errors.Join(err, owner.give(o.dir))
}

// readPeers reads the list of members.
func readPeers(path string) ([]raftnode.Server, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, console.Usagef("--peers %s: no such file", console.ShortQuote(path))
	}
	if err != nil {
		return nil, err
	}
	var list []struct{ ID, Address string }
	if err := json.Unmarshal(b, &list); err != nil || len(list) == 0 {
		return nil, console.Usagef(`--peers %s: want a JSON list as [{"id": "c1", "address": "10.0.0.1:7070"}]`, console.ShortQuote(path))
	}
	var servers []raftnode.Server
	for _, p := range list {
		servers = append(servers, raftnode.Server{ID: p.ID, Addr: p.Address})
	}
	return servers, nil
}
