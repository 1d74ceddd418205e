package site_test

import (
	"strings"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/schedtest"
	"github.com/berth-scheduler/berth/scheduler/site"
)

// TestPromisesKeepQuotas: a deadline is promised if quotas let the job start in time
// for it, after what runs and what was promised to others of the same quota; not to a
// job that others of it would then be late for; and to nobody in a partition that is
// down.
func TestPromisesKeepQuotas(t *testing.T) {
	t.Parallel()
	bio := accounting.Subject{Account: "bio"}
	due := func(id cluster.JobID, account string, takes, by time.Duration) *cluster.Job {
		j := schedtest.Job(id, schedtest.Exclusive, schedtest.Lasts(takes), schedtest.Limit(takes))
		j.Spec.Account, j.Spec.Deadline = account, schedtest.Now.Add(by)
		return j
	}
	const m = time.Minute
	for _, c := range []struct {
		name    string
		limits  accounting.Limits
		waits   []*cluster.Job
		asks    *cluster.Job
		down    bool
		refused string
	}{
		{"no quota", accounting.Limits{}, nil, due(9, "bio", 10*m, 15*m), false, ""},
		{"behind what runs", accounting.Limits{Running: 1}, nil, due(9, "bio", 10*m, 45*m), false, ""},
		{"too late behind what runs", accounting.Limits{Running: 1}, nil, due(9, "bio", 10*m, 35*m), false,
			"AssocGrpJobsLimit: account bio may run 1 job at once, and 1 run; behind what counts for that, it would end at 2023-11-14 22:53:20 UTC"},
		{"of another account", accounting.Limits{Running: 1}, nil, due(9, "chem", 10*m, 15*m), false, ""},
		{"GPUs held at once", accounting.Limits{GPUMilli: 1000}, nil, due(9, "bio", 10*m, 35*m), false, "account bio may hold 1 GPU at once and holds 1"},
		{"more than it may ever hold", accounting.Limits{GPUMilli: 500}, nil, due(9, "bio", 10*m, 10*time.Hour), false, "and nothing expected changes that"},
		{"behind what was promised", accounting.Limits{Running: 1}, []*cluster.Job{due(5, "bio", 10*m, 45*m)}, due(9, "bio", 10*m, 48*m), false, "AssocGrpJobsLimit"},
		{"with time for both", accounting.Limits{Running: 1}, []*cluster.Job{due(5, "bio", 10*m, 45*m)}, due(9, "bio", 10*m, 55*m), false, ""},
		{"before what was promised", accounting.Limits{Running: 1}, []*cluster.Job{due(5, "bio", 10*m, 45*m)}, due(9, "bio", 10*m, 44*m), false, "job 5, which was promised its end by"},
		{"behind one that is late anyway", accounting.Limits{Running: 2}, []*cluster.Job{due(5, "bio", 40*m, 39*m)}, due(9, "bio", 10*m, 55*m), false, ""},
		{"a partition that is down", accounting.Limits{}, nil, due(9, "bio", 10*m, 15*m), true, "partition p is down"},
	} {
		w := schedtest.NewWorld([]*cluster.Node{schedtest.Node("n1", 8, "T4")}, c.waits...)
		s := w.Snapshot()
		lim := accounting.NewLimiter(nil, map[accounting.Subject]*accounting.Quota{bio: {Subject: bio, Limits: c.limits}}, nil)
		runs := schedtest.Job(1, schedtest.Exclusive, schedtest.Limit(30*m), schedtest.Lasts(30*m))
		runs.Spec.Account, runs.State = "bio", cluster.JobRunning
		runs.Attempts = []cluster.Attempt{{No: 1, State: cluster.JobRunning, Placed: s.Now, Started: s.Now, GPUMilli: cluster.WholeGPU,
			Berth: cluster.Berth{Node: "n1", GPUs: []cluster.GPUShare{{GPU: "n1-00", Share: cluster.Share{Exclusive: true, Milli: cluster.WholeGPU}}}}}}
		lim.Count(accounting.HolderOf(runs), 1, 1, cluster.WholeGPU)
		s.Limits, s.Running = lim, []*cluster.Job{runs}
		if c.down {
			nodes, err := cluster.ParseHostList(cluster.AllNodes)
			if err != nil {
				t.Fatal(err)
			}
			c.asks.Spec.Partition, s.Partitions = "p", []*cluster.Partition{{Name: "p", Nodes: nodes, Down: true}}
		}
		_, err := site.Admit(s, []*cluster.Job{c.asks}, &site.Site{Chosen: site.Chosen{Policy: scheduler.Default()}})
		if (err == nil) != (c.refused == "") || err != nil && !strings.Contains(err.Error(), c.refused) {
			t.Errorf("%s: %v, want %q", c.name, err, c.refused)
		}
	}
}
