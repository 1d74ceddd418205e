package sruncmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berth-scheduler/berth/agent/hold"
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/hostnames"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/jobspec"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"
	"github.com/berth-scheduler/berth/cmd/internal/units"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// allocation is a job that only holds its resources, for the program that made it.
type allocation struct {
	e *console.Env
	c *client.Client
	// id is 0 before it is submitted.
	id  uint64
	job *apiv1.Job
	env []string // of its batch step, as far as the request determines it

	stop context.CancelFunc
	kept sync.WaitGroup
	// over closes when the job ends without us.
	over chan struct{}
}

// allocError is why there is no allocation, in the words of each program.
type allocError struct{ err error }

func (a *allocError) Error() string { return a.err.Error() }
func (a *allocError) Unwrap() error { return a.err }

// submit requests an allocation. It reports options that are not done as
// asked, unless told to be quiet.
func submit(ctx context.Context, e *console.Env, c *client.Client, o *options, name string, kept bool) (*allocation, error) {
	session := hold.Session{Kept: kept}
	if text, given := o.values["idle-limit"]; given {
		var err error
		if session.Idle, err = units.ParseDuration(text); err != nil {
			return nil, fmt.Errorf("--idle-limit: %w", err)
		}
	}
	args := &jobspec.SpecArgs{}
	args.Slurm.Set = o.alloc
	return submitSession(ctx, e, c, args, name, session)
}

func submitSession(ctx context.Context, e *console.Env, c *client.Client, args *jobspec.SpecArgs, name string, session hold.Session) (*allocation, error) {
	if err := args.FromSession(e, name, session.Text()); err != nil {
		return nil, err
	}
	return sendSession(ctx, e, c, args)
}

// sendSession submits the request in args.
func sendSession(ctx context.Context, e *console.Env, c *client.Client, args *jobspec.SpecArgs) (*allocation, error) {
	warnings, err := args.Complete(e)
	if err != nil {
		return nil, err
	}
	for _, w := range warnings {
		e.Warnf("warning: %s", console.Escape(w))
	}
	find := client.GPUType
	if args.Slurm.Typed && args.Spec.GPUType == args.Slurm.Asked.GPUType {
		find = client.SlurmType
	}
	if args.Spec.GPUType, err = find(ctx, c, args.Spec.GPUType); err != nil {
		return nil, err
	}
	req := &apiv1.SubmitJobsRequest{RequestId: e.RequestID(), Jobs: []*apiv1.JobSpec{apiconv.SpecToAPI(&args.Spec)}}
	resp, err := client.SubmitJobs.Ask(ctx, c, client.Changes, req)
	if err != nil {
		return nil, &allocError{err}
	}
	for _, w := range resp.GetWarnings() {
		e.Warnf("warning: %s", console.Escape(w))
	}
	for _, p := range resp.GetPromises() {
		e.Warnf("%s", console.Escape(p))
	}
	return &allocation{e: e, c: c, id: resp.GetIds()[0], env: args.Slurm.Asked.Env, over: make(chan struct{})}, nil
}

// await waits until the job runs, and reports once that it waits, unless that
// is only for a moment. An interrupt cancels it.
func (a *allocation) await(ctx context.Context, queued func()) error {
	said := newDelayed(queued)
	err := a.c.WatchJobs(ctx, []uint64{a.id}, func(news []*apiv1.Job) bool {
		for _, j := range news {
			if j.GetId() != a.id {
				continue
			}
			a.job = j
			st := j.GetState()
			if st == cluster.JobRunning.String() || console.Terminal(st) {
				return true
			}
			said.waits(st == cluster.JobPending.String() || st == cluster.JobQueued.String())
		}
		return false
	})
	said.stop()
	if err != nil {
		a.cancel()
		return err
	}
	if a.job, err = a.c.GetJob(ctx, a.id); err != nil {
		return err
	}
	if console.Terminal(a.job.GetState()) {
		return errRevoked
	}
	return nil
}

// errRevoked reports that the job ended before it began.
var errRevoked = errors.New("the job ended")

// cancel cancels the job as its user, whatever became of the caller's context.
func (a *allocation) cancel() {
	ctx, done := context.WithTimeout(context.Background(), a.c.Timeout)
	defer done()
	_, err := client.CancelJobs.Ask(ctx, a.c, client.Changes, &apiv1.CancelJobsRequest{RequestId: a.e.RequestID(), Ids: []uint64{a.id}})
	if err != nil {
		a.e.Warnf("job %d may still be running, cancel it with scancel %[1]d: %s", a.id, console.Escape(err.Error()))
	}
}

// keep holds the job for as long as this program runs, and notices its end.
func (a *allocation) keep(ctx context.Context) error {
	ctx, a.stop = context.WithCancel(context.WithoutCancel(ctx))
	s, err := a.c.OpenSession(ctx, client.SessionConfig{Keep: hold.Defaults().Again, Patience: hold.Defaults().Again}, a.own("keep"))
	if err != nil {
		return err
	}
	m, err := s.Recv() // it says that the holder knows
	if err == nil && m.GetStdout() == nil {
		err = fmt.Errorf("job %d cannot be kept: %s", a.id, m.GetStderr())
	}
	if err != nil {
		s.Close()
		return err
	}
	a.kept.Go(func() {
		defer s.Close()
		for {
			m, err := s.Recv()
			if m.GetEnded() != nil || err != nil {
				if ctx.Err() == nil {
					close(a.over)
				}
				return
			}
		}
	})
	return nil
}

// own returns a command next to the job's first process.
func (a *allocation) own(args ...string) *apiv1.AttachOpen {
	x := &apiv1.AttachExec{Own: true, Command: [][]byte{[]byte(hold.Arg)}}
	for _, arg := range args {
		x.Command = append(x.Command, []byte(arg))
	}
	return &apiv1.AttachOpen{Job: a.id, What: &apiv1.AttachOpen_Exec{Exec: x}}
}

// end ends the job with a code, and waits until that is confirmed.
func (a *allocation) end(code int) {
	ctx, done := context.WithTimeout(context.Background(), a.c.Timeout)
	defer done()
	if a.stop != nil {
		defer a.kept.Wait()
		defer a.stop()
	}
	select {
	case <-a.over:
		return
	default:
	}
	// Kept, it survives the death of a leader, and its answer arrives through the next.
	s, err := a.c.OpenSession(ctx, client.SessionConfig{Keep: a.c.Timeout, Patience: a.c.Timeout}, a.own("end", strconv.Itoa(code)))
	if err == nil {
		defer s.Close()
		for err == nil {
			var m *apiv1.AttachResponse
			if m, err = s.Recv(); m.GetEnded() != nil && m.GetEnded().GetCode() == 0 {
				return
			} else if m.GetEnded() != nil {
				break
			}
		}
	}
	if !a.endedSoon(ctx) {
		a.cancel()
	}
}

// endGrace is how long a job may take to end that may have been told to, but
// whose answer was lost, often because it ended: only then is it cancelled.
const endGrace = 5 * time.Second

// endedSoon reports whether the job ends by itself within endGrace.
func (a *allocation) endedSoon(ctx context.Context) bool {
	ctx, done := context.WithTimeout(ctx, endGrace)
	defer done()
	for {
		j, err := a.c.GetJob(ctx, a.id)
		if err == nil && console.Terminal(j.GetState()) {
			return true
		}
		select {
		case <-a.over:
			return true
		case <-ctx.Done():
			return false
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// jobEnv returns the variables by which Slurm tells the command of salloc of its job.
func (a *allocation) jobEnv() []string {
	j := a.job
	nodes, err := slurm.Unfold(j.GetNodeList())
	if err != nil || len(nodes) == 0 {
		nodes = []string{j.GetNode()}
	}
	list, n := hostnames.FoldSet(nodes), len(nodes)
	id, spec := strconv.FormatUint(a.id, 10), j.GetSpec()
	counts := make([]int, n)
	for i := range counts {
		counts[i] = int(max(1, (spec.GetCpuMilli()+999)/1000))
	}
	partition := cmp.Or(j.GetPartition(), "all")
	env := []string{
		"SLURM_JOB_ID=" + id, "SLURM_JOBID=" + id, "SLURM_JOB_NAME=" + j.GetName(), "SLURM_JOB_PARTITION=" + partition,
		"SLURM_JOB_NODELIST=" + list, "SLURM_NODELIST=" + list, "SLURM_JOB_NUM_NODES=" + strconv.Itoa(n), "SLURM_NNODES=" + strconv.Itoa(n),
		"SLURM_JOB_CPUS_PER_NODE=" + foldCounts(counts), "SLURM_NODE_ALIASES=(null)", "SLURM_CLUSTER_NAME=berth",
	}
	if spec.GetMostNodes() > 0 {
		env = append(env, a.tasksOn(n)...)
	}
	if x := j.GetAccount(); x != "" {
		env = append(env, "SLURM_JOB_ACCOUNT="+x)
	}
	if x := j.GetQos(); x != "" {
		env = append(env, "SLURM_JOB_QOS="+x)
	}
	if g := len(j.GetGpus()); g > 0 {
		env = append(env, "SLURM_GPUS_ON_NODE="+strconv.Itoa(g))
	}
	if m := spec.GetMemMib(); m > 0 {
		env = append(env, "SLURM_MEM_PER_NODE="+strconv.FormatInt(m, 10))
	}
	if wd, err := a.e.Getwd(); err == nil {
		env = append(env, "SLURM_SUBMIT_DIR="+wd)
	}
	if host, err := a.e.Hostname(); err == nil {
		env = append(env, "SLURM_SUBMIT_HOST="+host)
	}
	return append(env, a.env...)
}

// tasksOn returns the variables for the number of tasks on so many nodes,
// which the request left open.
func (a *allocation) tasksOn(nodes int) []string {
	each, said := 1, false
	for _, line := range a.env {
		if v, ok := strings.CutPrefix(line, "SLURM_NTASKS_PER_NODE="); ok {
			if n, err := strconv.Atoi(v); err == nil && n > 0 && n <= cluster.MaxTasks {
				each, said = n, true
			}
		}
	}
	env := []string{"SLURM_TASKS_PER_NODE=" + foldCounts(slices.Repeat([]int{each}, nodes))}
	if said {
		all := strconv.Itoa(each * nodes)
		env = append(env, "SLURM_NTASKS="+all, "SLURM_NPROCS="+all)
	}
	return env
}

// steps creates a file in which the steps of the job are counted on this machine.
func (a *allocation) steps() (path string, remove func(), err error) {
	f, err := os.CreateTemp("", fmt.Sprintf("berth-steps-%d-", a.id))
	if err != nil {
		return "", nil, fmt.Errorf("count of steps: %w", err)
	}
	remove = func() { _ = os.Remove(f.Name()) } // it only contains a number
	return f.Name(), remove, f.Close()
}

// jobOfView returns the coordinators' view of a job for its steps.
func jobOfView(j *apiv1.Job) (*job, error) {
	if j.GetState() != cluster.JobRunning.String() {
		return nil, slurmWords("Invalid job id specified: job %d is %s", j.GetId(), j.GetState())
	}
	a := &allocation{id: j.GetId(), job: j}
	a.e = &console.Env{Getwd: os.Getwd, Hostname: os.Hostname}
	env := map[string]string{}
	for _, line := range a.jobEnv() {
		for i := range line {
			if line[i] == '=' {
				env[line[:i]] = line[i+1:]
				break
			}
		}
	}
	return jobFrom(func(name string) string { return env[name] })
}
