package coordinator_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// TestRefusalsNameTheLimit: all that accounts, QOS, quotas and partitions may
// refuse at a submit, and make a job wait for: each says which limit it is, its
// value and the use.
func TestRefusalsNameTheLimit(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"), coordtest.T4("GPU-2"))
	mustRule(t, cc, qosRule(&apiv1.QOS{Name: "low"}), qosRule(&apiv1.QOS{Name: "high"}),
		accountRule(&apiv1.Account{Name: "site", Shares: 1}), accountRule(&apiv1.Account{Name: "bio", Parent: "site", Shares: 1, Qos: []string{"low"}, DefaultQos: "low"}),
		accountRule(&apiv1.Account{Name: "chem", Shares: 1}), memberRule(&apiv1.AccountUser{Account: "bio", Uid: alice, Name: "alice", Shares: 1}))
	restricted := map[string]*apiv1.AccessList{
		"p1": {List: "allow-accounts", Names: []string{"chem"}}, "p2": {List: "deny-accounts", Names: []string{"site"}},
		"p3": {List: "allow-qos", Names: []string{"high"}}, "p4": {List: "allow-groups", Names: []string{"4711"}},
	}
	for name, l := range restricted {
		all := "ALL"
		if _, err := apirpc.NewClusterServiceClient(cc).SetPartition(as(t, admin), &apiv1.SetPartitionRequest{Name: name, Nodes: &all, Access: []*apiv1.AccessList{l}}); err != nil {
			t.Fatal(err)
		}
	}
	all, yes := "ALL", true
	if _, err := apirpc.NewClusterServiceClient(cc).SetPartition(as(t, admin), &apiv1.SetPartitionRequest{Name: "open", Nodes: &all, Default: &yes}); err != nil {
		t.Fatal(err)
	}
	part := func(name string) *apiv1.JobSpec { s := spec(1); s.Partition = name; return s }
	jobs := apirpc.NewJobServiceClient(cc)
	rid := 100
	ask := func(s *apiv1.JobSpec) ([]uint64, string) {
		rid++
		ids, err := submit(t, cc, alice, reqID(rid), s)
		if err != nil {
			return nil, apiconv.FromStatus(err).Msg
		}
		return ids, ""
	}
	ids, refused := ask(wholeOnly(gpus(1, spec(1))))
	if refused != "" {
		t.Fatal(refused)
	}
	a.Report(assigned(t, a, ids[0]), running, 0)
	await(t, cc, ids[0], "RUNNING")

	account, each, mine := &apiv1.Quota{Account: "site"}, &apiv1.Quota{Each: true}, &apiv1.Quota{Account: "bio", User: true, Uid: alice}
	qos, ofQOS := &apiv1.Quota{Qos: "low"}, &apiv1.Quota{Qos: "low", Each: true}
	hour := int64(time.Hour / time.Microsecond)
	whole := func() *apiv1.JobSpec { return wholeOnly(gpus(1, spec(1))) }
	for _, x := range []struct {
		name  string
		quota *apiv1.Quota
		l     *apiv1.Limits
		job   *apiv1.JobSpec
		want  string // at the submit
		waits string // or while it waits
	}{
		{name: "no such account", job: charged("math", spec(1)), want: `Invalid account or account/partition combination specified: account "math" is not known; see: berth account list`},
		{name: "not hers", job: charged("chem", spec(1)), want: "Invalid account or account/partition combination specified: user u1000 is not in account chem; see: berth account list"},
		{name: "no such qos", job: served("mid", spec(1)), want: `Invalid qos specification: qos "mid" is not known; see: berth qos list`},
		{name: "not the account's", job: served("high", spec(1)), want: "Invalid qos specification: account bio allows only [low], not qos high"},
		{name: "partition for others", job: part("p1"), want: "Invalid account or account/partition combination specified: partition p1 has allow-accounts=chem, and the job's is bio; see: berth partition show p1"},
		{name: "partition not for hers", job: part("p2"), want: "Invalid account or account/partition combination specified: partition p2 has deny-accounts=site, and the job's is bio; see: berth partition show p2"},
		{name: "partition for a qos", job: part("p3"), want: "Invalid qos specification: partition p3 has allow-qos=high, and the job's is low; see: berth partition show p3"},
		{name: "partition for a group", job: part("p4"), want: "User's group not permitted to use this partition: partition p4 has allow-groups=4711, and the user is in none of these groups; see: berth partition show p4"},
		{name: "time", quota: account, l: &apiv1.Limits{MaxTime: durationpb.New(time.Hour)}, job: limited(2*time.Hour, spec(1)),
			want: "AssocMaxWallDurationPerJobLimit: each job of account site may ask for 1h, and 2h are asked for; give a shorter --time"},
		{name: "time of a qos", quota: qos, l: &apiv1.Limits{MaxTime: durationpb.New(time.Hour)}, job: limited(2*time.Hour, spec(1)),
			want: "QOSMaxWallDurationPerJobLimit: each job of qos low may ask for 1h, and 2h are asked for; give a shorter --time"},
		{name: "GPUs of a job", quota: each, l: &apiv1.Limits{MaxGpus: 1}, job: gpus(2, spec(1)),
			want: "AssocMaxGRESPerJob: each job of user u1000 may ask for 1 GPU, and 2 are asked for"},
		{name: "more than all", quota: account, l: &apiv1.Limits{GpuMilli: 1500}, job: wholeOnly(gpus(2, spec(1))),
			want: "AssocGrpGRES: account site may hold 1.5 GPUs at once and holds 1; this job alone would take 2"},
		{name: "more than the budget", quota: account, l: &apiv1.Limits{GpuTimeUs: hour, Period: "year"}, job: limited(2*time.Hour, whole()),
			want: "AssocGrpGRESMinutes: account site may use 1.0 GPU-hours a year, and 0.0 GPU-hours are used; this job alone may use 2.0 GPU-hours; give a shorter --time"},
		{name: "jobs of an account", quota: account, l: &apiv1.Limits{Jobs: 1}, job: spec(1),
			want: "AssocGrpSubmitJobsLimit: account site may have 1 job waiting or running and has 1; 1 more are asked for"},
		{name: "jobs of each user", quota: each, l: &apiv1.Limits{Jobs: 1}, job: spec(1),
			want: "AssocMaxSubmitJobLimit: user u1000 may have 1 job waiting or running and has 1; 1 more are asked for"},
		{name: "jobs of a qos", quota: qos, l: &apiv1.Limits{Jobs: 1}, job: spec(1),
			want: "QOSGrpSubmitJobsLimit: qos low may have 1 job waiting or running and has 1; 1 more are asked for"},
		{name: "jobs of each user of a qos", quota: ofQOS, l: &apiv1.Limits{Jobs: 1}, job: spec(1),
			want: "QOSMaxSubmitJobPerUserLimit: user u1000 in qos low may have 1 job waiting or running and has 1; 1 more are asked for"},
		{name: "GPUs of an account", quota: account, l: &apiv1.Limits{GpuMilli: 1000}, job: whole(),
			waits: "AssocGrpGRES: account site may hold 1 GPU at once and holds 1; this job takes 1"},
		{name: "GPUs of a user", quota: mine, l: &apiv1.Limits{GpuMilli: 1000}, job: whole(),
			waits: "AssocGrpGRES: user u1000 in account bio may hold 1 GPU at once and holds 1; this job takes 1"},
		{name: "GPUs of a qos", quota: qos, l: &apiv1.Limits{GpuMilli: 1000}, job: whole(),
			waits: "QOSGrpGRES: qos low may hold 1 GPU at once and holds 1; this job takes 1"},
		{name: "GPUs of each user of a qos", quota: ofQOS, l: &apiv1.Limits{GpuMilli: 1000}, job: whole(),
			waits: "QOSMaxGRESPerUser: user u1000 in qos low may hold 1 GPU at once and holds 1; this job takes 1"},
		{name: "running of an account", quota: account, l: &apiv1.Limits{Running: 1}, job: whole(), waits: "AssocGrpJobsLimit: account site may run 1 job at once, and 1 run"},
		{name: "running of each user", quota: each, l: &apiv1.Limits{Running: 1}, job: whole(), waits: "AssocMaxJobsLimit: user u1000 may run 1 job at once, and 1 run"},
		{name: "running of a qos", quota: qos, l: &apiv1.Limits{Running: 1}, job: whole(), waits: "QOSGrpJobsLimit: qos low may run 1 job at once, and 1 run"},
		{name: "running of each user of a qos", quota: ofQOS, l: &apiv1.Limits{Running: 1}, job: whole(), waits: "QOSMaxJobsPerUserLimit: user u1000 in qos low may run 1 job at once, and 1 run"},
		{name: "a budget that decays", quota: account, l: &apiv1.Limits{GpuTimeUs: 1}, job: gpus(1, spec(1)),
			waits: "AssocGrpGRESMinutes: account site may use 0.0 GPU-hours that have not decayed, and "},
		{name: "a budget of a period", quota: qos, l: &apiv1.Limits{GpuTimeUs: 1, Period: "year"}, job: gpus(1, spec(1)),
			waits: "QOSGrpGRESMinutes: qos low may use 0.0 GPU-hours a year, and "},
	} {
		if x.quota != nil {
			x.quota.Limits, x.quota.Revision = x.l, 0
			mustRule(t, cc, quotaRule(x.quota))
		}
		ids, refused := ask(x.job)
		if x.waits == "" {
			if refused != x.want {
				t.Errorf("%s: %q\nwant %q", x.name, refused, x.want)
			}
		} else if refused != "" {
			t.Errorf("%s: refused: %s", x.name, refused)
		} else {
			var why *apiv1.ExplainJobResponse
			until(t, x.name+" is why it waits", func() bool {
				var err error
				if why, err = jobs.ExplainJob(as(t, alice), &apiv1.ExplainJobRequest{Id: ids[0]}); err != nil {
					t.Fatal(err)
				}
				return len(why.Explanations) == 1 && strings.HasPrefix(why.Explanations[0].Code+": "+why.Explanations[0].Detail, x.waits)
			})
			// The one that runs has no end in sight but its own; budgets are filled again.
			if why.Room == nil || why.Room.Words == "" || !why.Room.P50.IsValid() || why.FairShare.GetAccount() != "bio" || why.FairShare.GetOf() != 1 {
				t.Errorf("%s: room %v, fair share %v", x.name, why.Room, why.FairShare)
			}
		}
		if len(ids) > 0 {
			if _, err := jobs.CancelJobs(as(t, alice), &apiv1.CancelJobsRequest{Ids: ids}); err != nil {
				t.Fatal(err)
			}
		}
		if x.quota != nil {
			if _, err := apirpc.NewAccountServiceClient(cc).SetStanding(as(t, admin), &apiv1.SetStandingRequest{Standing: quotaRule(x.quota), Remove: true}); err != nil {
				t.Fatal(err)
			}
		}
	}
}
