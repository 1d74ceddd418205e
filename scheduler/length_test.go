package scheduler_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

// TestOrderByLength starts one job after the other on one card and looks at
// who comes first.
func TestOrderByLength(t *testing.T) {
	t.Parallel()
	m := time.Minute
	alone := func(id cluster.JobID, d time.Duration, opts ...JobOption) *cluster.Job {
		return Job(id, append([]JobOption{Exclusive, Lasts(d)}, opts...)...)
	}
	// often are jobs without GPUs that came one after the other, a minute apart,
	// ten hours ago.
	often := func(n int, every time.Duration) (jobs []*cluster.Job) {
		for i := range n {
			jobs = append(jobs, Job(cluster.JobID(i+1), Cores(1<<40), Waited(10*time.Hour+time.Duration(i)*every), func(j *cluster.Job) { j.Spec.GPUs = 0 }))
		}
		return jobs
	}
	// Ten hours of others make a drain of ten hours and a little more.
	const others = 10 * 60
	for _, c := range []struct {
		name string
		pol  func(*scheduler.Policy)
		jobs []*cluster.Job
		want cluster.JobID
	}{
		{"the longest of what is long", nil, []*cluster.Job{alone(1, 100*m), alone(2, 200*m), alone(3, 150*m)}, 2},
		{"what is short before what is long", nil, []*cluster.Job{alone(1, 200*m), alone(2, 5*m)}, 2},
		{"the least GPU time of what is short", nil, []*cluster.Job{alone(1, 9*m), alone(2, 2*m), alone(3, 7*m)}, 2},
		{"what is long before what is neither", nil, []*cluster.Job{alone(1, 30*m), alone(2, 90*m)}, 2},
		{"the least GPU time of what is neither", nil, []*cluster.Job{alone(1, 60*m), alone(2, 20*m)}, 2},
		{"equals by id", nil, []*cluster.Job{alone(2, 90*m), alone(1, 90*m)}, 1},
		{"a time limit bounds what is predicted", nil, []*cluster.Job{alone(1, 90*m), alone(2, 500*m, Limit(5*m))}, 2},
		{"who is old, whatever it takes", nil, []*cluster.Job{alone(1, 5*m), alone(2, 30*m, Waited(22*time.Hour))}, 2},
		{"nobody is old under a long backlog", nil, []*cluster.Job{alone(1, 5*m), alone(2, 30*m, Waited(19*time.Hour))}, 1},
		{"but after the site's longest wait", func(p *scheduler.Policy) { p.MaxAge = 5 * time.Hour },
			[]*cluster.Job{alone(1, 5*m), alone(2, 30*m, Waited(6*time.Hour))}, 2},
		{"longest first while few came", nil, []*cluster.Job{alone(1, 100*m, Waited(30*m)), alone(2, 200*m, Waited(20*m))}, 2},
		{"longest first in a stream younger than the drain", nil,
			[]*cluster.Job{alone(1, 100*m, Waited(30*m)), alone(2, 200*m, Waited(20*m)), alone(3, 150*m, Waited(10*m))}, 2},
		{"shortest first in a stream as old as the drain", nil,
			[]*cluster.Job{alone(1, 200*m, Waited(18*time.Hour)), alone(2, 100*m, Waited(8*time.Hour)), alone(3, 150*m, Waited(10*m)), alone(4, 300*m, Waited(2*time.Hour))}, 2},
		{"longest first when the stream has ended", nil, append(often(20, m), alone(50, 200*m, Waited(15*time.Hour)), alone(51, 100*m, Waited(15*time.Hour))), 50},
		{"shortest first when somebody came just now", nil, append(often(20, m), alone(50, 200*m, Waited(15*time.Hour)), alone(51, 100*m)), 51},
		{"nothing is short where the site says so", func(p *scheduler.Policy) { p.ShortPart = 0 }, []*cluster.Job{alone(1, 200*m), alone(2, 5*m)}, 1},
		{"nothing is long where the site says so", func(p *scheduler.Policy) { p.LongPart = 0 }, []*cluster.Job{alone(1, 300*m), alone(2, 90*m)}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := NewWorld([]*cluster.Node{Node("n1", 1, a100), Node("n2", 1, a100)}, c.jobs...)
			running(w, Job(90, Lasts(2*others*m), On("n2"), Waited(Now.Sub(c.jobs[0].Submitted))), "n2-00", whole(80000))
			pol := scheduler.Default()
			if c.pol != nil {
				c.pol(&pol)
			}
			p := scheduler.Schedule(w.Snapshot(), pol)
			if len(p.Starts) != 1 || p.Starts[0].Job != c.want {
				t.Errorf("%q, want job %d alone to start", show(&p), c.want)
			}
		})
	}
}

// TestTightMemory: where a larger card will do, a job does not take one that
// it may be too large for, even if that alone is free.
func TestTightMemory(t *testing.T) {
	t.Parallel()
	tight := func(id cluster.JobID, opts ...JobOption) *cluster.Job {
		return Job(id, append([]JobOption{Predict(a100, 14000, 300, time.Hour), Predict(t4, 14000, 300, time.Hour), func(j *cluster.Job) {
			for i := range j.Estimates {
				j.Estimates[i].GPUMemP95MiB = 15500 // a T4 sells 15,000
			}
		}}, opts...)...)
	}
	unsure := func(j *cluster.Job) {
		for i := range j.Estimates {
			j.Estimates[i].ConfidenceMilli = 100
		}
	}
	both := func() *World {
		w := NewWorld([]*cluster.Node{Node("n1", 1, a100), Node("n2", 1, t4)})
		running(w, Job(90, Lasts(time.Hour)), "n1-00", whole(80000))
		return w
	}
	for _, c := range []struct {
		name string
		w    *World
		job  *cluster.Job
		want []string
	}{
		{"waits for the larger", both(), tight(1), []string{"j1 waits at n1-00 in 1h0m0s: GPUMemory"}},
		{"takes it alone where there is no larger", NewWorld([]*cluster.Node{Node("n2", 1, t4)}), tight(1), []string{"j1 on n2-00:whole"}},
		{"takes it alone where the larger has no room for its cores",
			NewWorld([]*cluster.Node{Node("n1", 1, a100, Host(1000, 1<<20)), Node("n2", 1, t4)}), tight(1, Cores(2000)), []string{"j1 on n2-00:whole"}},
		{"takes it when it declares its memory", both(), tight(1, Mem(14000)), []string{"j1 on n2-00:14000/300"}},
		{"takes it when the prediction is a guess", both(), tight(1, unsure), []string{"j1 on n2-00:whole"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.w.Submit(c.job)
			p := scheduler.Schedule(c.w.Snapshot(), scheduler.Default())
			if d := cmp.Diff(c.want, decisions(p)); d != "" {
				t.Errorf("plan (-want +got):\n%s", d)
			}
		})
	}
}
