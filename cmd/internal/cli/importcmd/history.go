package importcmd

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/slurmconf"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// maxRuns is how many runs are imported: the most that coordinators accept at once.
const maxRuns = 1024

// historyView is the JSON of a history.
type historyView struct {
	File     string        `json:"file"`
	Rows     int           `json:"rows"`
	Jobs     int           `json:"jobs"`
	Taken    int           `json:"taken"`
	Measured int           `json:"gpu_memory_measured"`
	Dropped  []droppedView `json:"dropped"`
}

type droppedView struct {
	Why       string `json:"why"`
	Count     int    `json:"count"`
	FirstLine int    `json:"first_line"`
}

func viewHistory(file string, h *slurmconf.History) *historyView {
	if h == nil {
		return nil
	}
	v := &historyView{File: file, Rows: h.Rows, Jobs: h.Jobs, Taken: len(h.Runs), Measured: h.Measured, Dropped: []droppedView{}}
	for _, d := range h.Dropped {
		v.Dropped = append(v.Dropped, droppedView{d.Why, d.Count, d.Line})
	}
	return v
}

// readHistory reads the file of --sacct, nil if there is none.
func readHistory(file string) (*slurmconf.History, error) {
	if file == "" {
		return nil, nil
	}
	f, err := console.OpenRegular(file)
	if err != nil {
		return nil, &console.ExitError{Code: console.ExitNotFound, Err: fmt.Errorf("--sacct: %w", err)}
	}
	defer f.Close()
	h, err := slurmconf.ReadHistory(f, maxRuns)
	if err != nil {
		return nil, &console.ExitError{Code: console.ExitFailed, Err: fmt.Errorf("--sacct: %s: %w", file, err)}
	}
	return h, nil
}

func printHistory(e *console.Env, file string, h *slurmconf.History) {
	if h == nil {
		return
	}
	e.Printf("\nHistory in %s: %s, of which %s are useful; Slurm measured the GPU memory of %d\n", console.Escape(file),
		console.Plural(h.Jobs, "job", "jobs"), console.Plural(len(h.Runs), "run", "runs"), h.Measured)
	for _, d := range h.Dropped {
		at := ""
		if d.Line > 0 {
			at = fmt.Sprintf(", the first in line %d", d.Line)
		}
		e.Printf("  not %s: %d%s\n", console.Escape(d.Why), d.Count, at)
	}
}

// learner translates runs into the cluster's terms.
type learner struct {
	c        *client.Client
	accounts console.Accounts
	gpuType  string
	types    map[string]string
	users    map[string]int64 // -1 if unknown
	// strangers counts runs of unknown users, one of whom is stranger; untyped
	// those with unknown GPUs.
	strangers, untyped int
	stranger           string
}

// printDropped reports what of the history was not sent.
func (l *learner) printDropped(e *console.Env) {
	if l.strangers > 0 {
		e.Printf("  skipped, user not known on this machine, such as %s: %d\n", console.Escape(l.stranger), l.strangers)
	}
	if l.untyped > 0 {
		e.Printf("  skipped, GPU type not given or not in the cluster: %d; --gpu-type supplies a missing one\n", l.untyped)
	}
}

// learn sends the runs of a history.
func learn(ctx context.Context, e *console.Env, c *client.Client, h *slurmconf.History, gpuType string) error {
	l := &learner{c: c, accounts: e.Accounts, gpuType: gpuType, types: map[string]string{}, users: map[string]int64{}}
	req := &apiv1.ImportRunsRequest{}
	for _, r := range h.Runs {
		p, err := l.run(ctx, &r)
		if err != nil {
			return err
		}
		if p != nil {
			req.Runs = append(req.Runs, p)
		}
	}
	if len(req.Runs) == 0 {
		e.Printf("\nnothing was learned from the history\n")
		l.printDropped(e)
		return nil
	}
	resp, err := client.ImportRuns.Ask(ctx, c, client.Changes, req)
	if err != nil {
		return console.UnknownChange(err, "Repeating this is safe.")
	}
	jobs := resp.GetJobs()
	e.Printf("\n%s of %s learned\n", console.Plural(len(req.Runs), "run", "runs"), console.Plural(int(jobs), "job", "jobs"))
	l.printDropped(e)
	return nil
}

// run converts one run for a coordinator, nil if that is impossible.
func (l *learner) run(ctx context.Context, r *slurmconf.Run) (*apiv1.PastRun, error) {
	uid := l.uid(r.User)
	if uid < 0 {
		if l.strangers++; l.stranger == "" {
			l.stranger = r.User
		}
		return nil, nil
	}
	typ, err := l.typeOf(ctx, r.GPUType)
	if err != nil {
		return nil, err
	}
	if typ == "" {
		l.untyped++
		return nil, nil
	}
	return &apiv1.PastRun{Uid: uint32(uid), Name: r.Name, Gpus: uint32(r.GPUs), GpuType: typ, Seconds: r.Seconds,
		HostMemMib: r.HostMiB, CpuMilli: r.CPUMilli, GpuMemMib: r.GPUMiB, GpuUtilMilli: r.GPUUtilMilli}, nil
}

// uid returns a user's number, -1 if nobody has the name.
func (l *learner) uid(name string) int64 {
	if id, ok := l.users[name]; ok {
		return id
	}
	id := int64(-1)
	if n, err := strconv.ParseUint(name, 10, 32); err == nil {
		id = int64(n)
	} else if u, err := l.accounts.User(name); err == nil {
		if n, err := strconv.ParseUint(u.Uid, 10, 32); err == nil {
			id = int64(n)
		}
	}
	l.users[name] = id
	return id
}

// typeOf returns the cluster's type that a name of Slurm's means, "" if there
// is none; without a name it is the one that was given, or the cluster's only
// one.
func (l *learner) typeOf(ctx context.Context, asked string) (string, error) {
	if typ, ok := l.types[asked]; ok {
		return typ, nil
	}
	nodes, err := client.GetNodes(ctx, l.c, nil)
	if err != nil {
		return "", err
	}
	var all, like []string
	for _, n := range nodes {
		for _, g := range n.GetGpus() {
			t := g.GetType()
			if !slices.Contains(all, t) {
				all = append(all, t)
				if asked != "" && (t == asked || client.TypeMatches(t, asked)) {
					like = append(like, t)
				}
			}
		}
	}
	typ := ""
	switch {
	case len(like) == 1:
		typ = like[0]
	case asked == "" && len(all) == 1:
		typ = all[0]
	case asked == "" && l.gpuType != "":
		typ = l.gpuType
	}
	l.types[asked] = typ
	return typ, nil
}
