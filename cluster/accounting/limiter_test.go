package accounting_test

import (
	"testing"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
)

// TestLimitsNameUsers: a user is named, and by number only where the name is not known;
// of one GPU the text is singular.
func TestLimitsNameUsers(t *testing.T) {
	t.Parallel()
	lim := accounting.NewLimiter(nil, map[accounting.Subject]*accounting.Quota{
		{Each: true}:             {Limits: accounting.Limits{GPUMilli: cluster.WholeGPU, MaxGPUs: 1}},
		{QOS: "low", Each: true}: {Limits: accounting.Limits{GPUMilli: 500}},
	}, nil)
	job := func(name, qos string) *cluster.Job {
		return &cluster.Job{Owner: cluster.Owner{UID: 1001, Name: name}, Spec: &cluster.Spec{QOS: qos, GPUs: 2}}
	}
	ada, low := job("ada", ""), job("ada", "low")
	lim.Count(accounting.HolderOf(ada), 1, 1, cluster.WholeGPU)
	for _, c := range []struct {
		got  cluster.Reason
		want string
	}{
		{lim.MayStart(accounting.WhoOf(ada), 500), "user ada may hold 1 GPU at once and holds 1; this job takes 0.5"},
		{lim.MayStart(accounting.WhoOf(job("", "")), 500), "user 1001 may hold 1 GPU at once and holds 1; this job takes 0.5"},
		{lim.MayGrow(accounting.WhoOf(ada), cluster.WholeGPU), "user ada may hold 1 GPU at once and holds 1; this job takes 1"},
		{lim.Enter(accounting.WhoOf(ada), ada.Spec), "each job of user ada may ask for 1 GPU, and 2 are asked for"},
	} {
		if c.got.Detail != c.want {
			t.Errorf("%q, want %q", c.got.Detail, c.want)
		}
	}
	lim.Count(accounting.HolderOf(ada), -1, -1, -cluster.WholeGPU)
	if r := lim.MayStart(accounting.WhoOf(low), 750); r.Detail != "user ada in qos low may hold 0.5 GPUs at once and holds 0; this job takes 0.75" {
		t.Errorf("%q", r.Detail)
	}
}
