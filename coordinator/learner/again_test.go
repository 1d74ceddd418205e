package learner

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
	"github.com/berth-scheduler/berth/proto/conv/plainconv"
)

// slowLog takes a while for each command, and refuses the first.
type slowLog struct {
	t     *testing.T
	f     *fsm.FSM
	index uint64
	tries int
	at    []time.Time // when it took a command
	most  int         // jobs in one
}

const slowLogTakes = 10 * time.Millisecond

func (p *slowLog) Version() uint32 { return fsm.EntryVersion }

func (p *slowLog) One(_ context.Context, cmd *logv1.Command) (fsm.Result, error) {
	time.Sleep(slowLogTakes)
	if p.tries++; p.tries == 1 {
		return fsm.Result{}, errors.New("no leader for a moment")
	}
	n := 0
	for _, g := range cmd.GetEstimateJobs().GetGroups() {
		n += len(g.Jobs)
	}
	p.at, p.most = append(p.at, time.Now()), max(p.most, n)
	return p.apply(cmd), nil
}

func (p *slowLog) apply(cmd *logv1.Command) fsm.Result {
	p.t.Helper()
	p.index++
	data, err := fsm.EncodeEntry(fsm.EntryVersion, 1, cluster.Time(p.index), []*logv1.Command{cmd})
	if err != nil {
		p.t.Fatal(err)
	}
	r := p.f.Apply(&raft.Log{Index: p.index, Term: 1, Data: data}).([]fsm.Result)[0]
	if r.Err != nil {
		p.t.Fatal(r.Err)
	}
	return r
}

// whoWait is a learner before a machine with so many jobs that wait, all alike, of which
// nothing was predicted.
func whoWait(t *testing.T, jobs int) (*Learner, *slowLog) {
	t.Helper()
	f := fsm.New(fsm.Options{})
	p := &slowLog{t: t, f: f}
	p.apply(&logv1.Command{Kind: &logv1.Command_RegisterNode{RegisterNode: &logv1.RegisterNode{Node: &logv1.Node{
		Id: "n1", State: 1, BootId: "b", CpuMilli: 1000, MemMib: 1000, Gpus: []*logv1.GPU{{Id: "g", Type: "T4", MemMib: 15360, SellableMib: 15000, MaxShares: 3}},
	}}}})
	who := cluster.Owner{UID: 1000}
	l := New(Config{}, Needs{FSM: f, Proposer: p, Clock: time.Now, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Registry: prometheus.NewRegistry()})
	spec := &cluster.Spec{Name: "j", Command: []string{"true"}, GPUs: 1}
	_, of, err := l.predict(who, spec, GPUTypes(f.Nodes()))
	if err != nil {
		t.Fatal(err)
	}
	sub := &logv1.SubmitJob{FirstJob: 1, RequestId: "request-0000000001", BodyHash: make([]byte, 32), Owner: &logv1.Owner{Uid: 1000}}
	for range jobs {
		sub.Jobs = append(sub.Jobs, &logv1.NewJob{Spec: &logv1.Spec{Name: "j", Command: [][]byte{[]byte("true")}, Gpus: 1, Signature: of.signature}})
	}
	p.apply(&logv1.Command{Kind: &logv1.Command_SubmitJob{SubmitJob: sub}})
	return l, p
}

// TestManyWhoWaitArePredictedAgainBitByBit: a leader predicts all that wait; a command
// that fails is made again, and thousands leave the log to others most of the time.
func TestManyWhoWaitArePredictedAgainBitByBit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const jobs = 4500
		l, p := whoWait(t, jobs)
		f := p.f
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- l.Again(ctx) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		for id := range cluster.JobID(jobs) {
			if j, _ := f.Job(id + 1); len(j.Estimates) != 1 || j.Estimated == 0 {
				t.Fatalf("job %d has the estimates %v at %d, after %d commands", id+1, j.Estimates, j.Estimated, p.tries)
			}
		}
		if len(p.at) != 5 || p.most != 1000 {
			t.Errorf("%d commands, the largest for %d jobs; want 5 of at most 1000", len(p.at), p.most)
		}
		for i := 1; i < len(p.at); i++ {
			if d := p.at[i].Sub(p.at[i-1]); d < 10*slowLogTakes {
				t.Errorf("command %d came %v after the one before, which took %v", i, d, slowLogTakes)
			}
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// TestScriptsAreKnownByWhatTheyDo: not by what they are called alone, nor by comments.
func TestScriptsAreKnownByWhatTheyDo(t *testing.T) {
	t.Parallel()
	l, _ := whoWait(t, 1)
	of := func(name, script string) names {
		t.Helper()
		packed, err := plainconv.PackScript([]byte(script))
		if err != nil {
			t.Fatal(err)
		}
		_, of, err := l.predict(cluster.Owner{UID: 1000}, &cluster.Spec{Name: "j", Command: []string{name}, GPUs: 1, Script: packed}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return of
	}
	base := of("sbatch", "#!/bin/sh\n#SBATCH -t 5\npython x.py --lr 0.1\n")
	for _, x := range []struct {
		name, script         string
		sameJob, sameProgram bool
	}{
		{"sbatch", "#!/bin/sh\n#SBATCH -t 9\n\n  python x.py --lr 0.1", true, true},
		{"sbatch", "#!/bin/sh\n#SBATCH -t 5\npython x.py --lr 0.2\n", false, true},
		{"sbatch", "#!/bin/sh\n#SBATCH -t 5\npython y.py --lr 0.1\n", false, false},
		{"sbatch", "#!/bin/sh\n", false, false},
		{"train.sh", "#!/bin/sh\n#SBATCH -t 5\npython x.py --lr 0.1\n", false, false},
	} {
		got := of(x.name, x.script)
		if got.signature == base.signature != x.sameJob || got.program == base.program != x.sameProgram {
			t.Errorf("%s %q: the same job %t, the same program %t", x.name, x.script, got.signature == base.signature, got.program == base.program)
		}
	}
	spoilt := &cluster.Spec{Name: "j", Command: []string{"x"}, GPUs: 1, Script: []byte("no gzip")}
	if _, _, err := l.predict(cluster.Owner{UID: 1000}, spoilt, nil); err != nil {
		t.Errorf("a script that cannot be read: %v", err)
	}
}

// TestWhoIsConcerned: by a run those of its signature and of its program, and of those
// that have no program none by that.
func TestWhoIsConcerned(t *testing.T) {
	t.Parallel()
	run := fsm.Sample{Signature: "s", Program: "p", Predicted: cluster.Estimate{GPUType: "T4"}}
	bare := run
	bare.Program = ""
	for _, x := range []struct {
		fresh              fsm.Sample
		signature, program string
		want               bool
	}{
		{run, "s", "", true}, {run, "s", "q", true}, {run, "t", "p", true}, {run, "t", "q", false}, {run, "t", "", false},
		{bare, "s", "p", true}, {bare, "t", "", false}, {bare, "t", "p", false}, {fsm.Sample{Signature: "imported"}, "t", "", true},
	} {
		if got := concerned([]fsm.Sample{x.fresh}, growth{})(&cluster.Job{Spec: &cluster.Spec{Signature: x.signature, Program: x.program}}); got != x.want {
			t.Errorf("by a run of %q and %q, a job of %q and %q: %t", x.fresh.Signature, x.fresh.Program, x.signature, x.program, got)
		}
	}
}

// TestRunsOfAUserAreNews: its jobs are looked at when its runs are a quarter more, and
// no others.
func TestRunsOfAUserAreNews(t *testing.T) {
	t.Parallel()
	g, at := growth{}, []int{}
	for n := 1; n <= 40; n++ {
		users := g.due([]fsm.Sample{{UID: 1000}, {UID: cluster.UID(2000 + n)}})
		if _, hit := users[1000]; hit {
			at = append(at, n)
		}
		if len(users) > 1 {
			t.Errorf("run %d: %v", n, users)
		}
	}
	if want := []int{4, 8, 12, 16, 21, 27, 35}; !slices.Equal(at, want) {
		t.Errorf("looked at after %v, want %v", at, want)
	}
}

// TestJobsKeepTheNumbersOfTheirCommand: with the program, for what their runs teach.
func TestJobsKeepTheNumbersOfTheirCommand(t *testing.T) {
	t.Parallel()
	l, _ := whoWait(t, 1)
	spec := &cluster.Spec{Name: "j", Command: []string{"x", "--lr", "0.1", "--epochs", "16"}, Dir: "/", GPUs: 1}
	j, err := l.Job(cluster.Owner{UID: 1000, GID: 1000, Name: "ada"}, apiconv.SpecToAPI(spec), nil)
	if err != nil {
		t.Fatal(err)
	}
	if j.Spec.Program == "" || j.Spec.Numbers != "16 0.1" {
		t.Errorf("program %q with the numbers %q", j.Spec.Program, j.Spec.Numbers)
	}
}
