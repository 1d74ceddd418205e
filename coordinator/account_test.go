package coordinator_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/coordtest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/site"
)

func setRule(t *testing.T, cc *grpc.ClientConn, who uint32, s *apiv1.Standing) error {
	t.Helper()
	_, err := apirpc.NewAccountServiceClient(cc).SetStanding(as(t, who), &apiv1.SetStandingRequest{Standing: s})
	return err
}

func mustRule(t *testing.T, cc *grpc.ClientConn, rules ...*apiv1.Standing) {
	t.Helper()
	for _, r := range rules {
		if err := setRule(t, cc, admin, r); err != nil {
			t.Fatalf("%v: %v", r, err)
		}
	}
}

func accountRule(a *apiv1.Account) *apiv1.Standing {
	return &apiv1.Standing{Kind: &apiv1.Standing_Account{Account: a}}
}

func memberRule(m *apiv1.AccountUser) *apiv1.Standing {
	return &apiv1.Standing{Kind: &apiv1.Standing_Member{Member: m}}
}

func qosRule(q *apiv1.QOS) *apiv1.Standing {
	return &apiv1.Standing{Kind: &apiv1.Standing_Qos{Qos: q}}
}

func quotaRule(q *apiv1.Quota) *apiv1.Standing {
	return &apiv1.Standing{Kind: &apiv1.Standing_Quota{Quota: q}}
}

// TestAccounts: jobs are charged to their user's account, wait for its quota
// with the limit, its value and the use, and are refused what can never be.
func TestAccounts(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1, Partitions: map[string]site.Chosen{"none": {Policy: fairly()}}})
	cc := c.Dial(0, "gate", "g")
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"), coordtest.T4("GPU-2"))
	if resp, err := apirpc.NewJobServiceClient(cc).SubmitJobs(as(t, alice), &apiv1.SubmitJobsRequest{RequestId: reqID(90), Jobs: []*apiv1.JobSpec{charged("lab", spec(2000))}}); err != nil ||
		len(resp.Warnings) != 1 || !strings.Contains(resp.Warnings[0], "this cluster has no accounts") {
		t.Fatalf("without accounts: %v, %v", resp, err)
	}
	mustRule(t, cc, accountRule(&apiv1.Account{Name: "bio", Shares: 1}), accountRule(&apiv1.Account{Name: "chem", Shares: 1}),
		memberRule(&apiv1.AccountUser{Account: "bio", Uid: alice, Name: "alice", Shares: 1}),
		quotaRule(&apiv1.Quota{Account: "bio", Limits: &apiv1.Limits{Running: 1, MaxTime: durationpb.New(time.Hour), MaxGpus: 1}}))
	for name, c := range map[string]struct {
		s    *apiv1.JobSpec
		want string
	}{
		"no such account": {charged("math", spec(1)), `Invalid account or account/partition combination specified: account "math" is not known`},
		"not hers":        {charged("chem", spec(1)), "Invalid account or account/partition combination specified: user u1000 is not in account chem"},
		"too long":        {limited(2*time.Hour, spec(1)), "AssocMaxWallDurationPerJobLimit: each job of account bio may ask for 1h, and 2h are asked for"},
		"too many GPUs":   {gpus(2, spec(1)), "AssocMaxGRESPerJob: each job of account bio may ask for 1 GPU, and 2 are asked for"},
		"steps forward":   {nice(-1, spec(1)), "nice: -1 would put the job ahead of others"},
	} {
		if _, err := submit(t, cc, alice, reqID(91), c.s); err == nil || !strings.HasPrefix(apiconv.FromStatus(err).Msg, c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	ids := submitted(t, cc, alice, reqID(1), spec(2000), spec(2000))
	one := assigned(t, a, ids[0])
	a.Report(one, running, 0)
	if j := await(t, cc, ids[0], "RUNNING"); j.Account != "bio" || j.Spec.TimeLimit.AsDuration() != time.Hour {
		t.Errorf("charged to %q, may take %s", j.Account, j.Spec.TimeLimit.AsDuration())
	}
	until(t, "the second waits for the quota", func() bool { return job(t, cc, alice, ids[1]).Reason == "AssocGrpJobsLimit" })
	why, err := apirpc.NewJobServiceClient(cc).ExplainJob(as(t, alice), &apiv1.ExplainJobRequest{Id: ids[1]})
	if err != nil || len(why.Explanations) == 0 || why.Explanations[0].Code != "AssocGrpJobsLimit" || why.Explanations[0].Detail != "account bio may run 1 job at once, and 1 run" {
		t.Errorf("why: %v, %v", why, err)
	}
	a.Report(one, completed, 0)
	a.Report(assigned(t, a, ids[1]), running, 0) // the quota has room again
	list, err := apirpc.NewAccountServiceClient(cc).ListStanding(as(t, alice), &apiv1.ListStandingRequest{Usage: true})
	if err != nil || len(list.Accounts) != 2 || len(list.Members) != 1 || list.Members[0].Use.GetOf() == 0 || len(list.Quotas) != 1 {
		t.Fatalf("list: %v, %v", list, err)
	}
}

func TestAccountRights(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	mustRule(t, cc, accountRule(&apiv1.Account{Name: "bio", Shares: 1}), accountRule(&apiv1.Account{Name: "lab", Parent: "bio", Shares: 1}),
		memberRule(&apiv1.AccountUser{Account: "bio", Uid: alice, Shares: 1, Coordinator: true}))
	each := func(account string) *apiv1.Standing {
		return quotaRule(&apiv1.Quota{Account: account, Each: true, Limits: &apiv1.Limits{Jobs: 5}})
	}
	for name, c := range map[string]struct {
		who  uint32
		rule *apiv1.Standing
		code cluster.Code
	}{
		"an account":                   {alice, accountRule(&apiv1.Account{Name: "x", Shares: 1}), cluster.CodeDenied},
		"her own account":              {alice, quotaRule(&apiv1.Quota{Account: "bio", Limits: &apiv1.Limits{Jobs: 5}}), cluster.CodeDenied},
		"each user of all":             {alice, quotaRule(&apiv1.Quota{Each: true, Limits: &apiv1.Limits{Jobs: 5}}), cluster.CodeDenied},
		"users, and coordinates none":  {alice + 1, each("bio"), cluster.CodeDenied},
		"nothing":                      {admin, &apiv1.Standing{}, cluster.CodeInvalid},
		"shares of nobody":             {admin, accountRule(&apiv1.Account{Name: "x"}), cluster.CodeInvalid},
		"a quota of an account and of": {admin, quotaRule(&apiv1.Quota{Account: "bio", Qos: "x"}), cluster.CodeInvalid},
	} {
		if err := setRule(t, cc, c.who, c.rule); err == nil || apiconv.FromStatus(err).Code != c.code {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
	for _, account := range []string{"bio", "lab"} {
		if err := setRule(t, cc, alice, each(account)); err != nil {
			t.Errorf("users of %s: %v", account, err)
		}
	}
}

// TestClassPreempts: a job of a class that may end another has its GPU, and the
// other waits again under its id and says for whom.
func TestClassPreempts(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	mustRule(t, cc, qosRule(&apiv1.QOS{Name: "scavenger", Grace: durationpb.New(5 * time.Second)}), qosRule(&apiv1.QOS{Name: "high", Priority: 10, Preempts: []string{"scavenger"}}))
	low := submitted(t, cc, alice, reqID(1), served("scavenger", gpus(1, wholeOnly(spec(1)))))
	one := assigned(t, a, low[0])
	a.Report(one, running, 0)
	if j := await(t, cc, low[0], "RUNNING"); j.Spec.CheckpointSignal != "TERM" || j.Spec.CheckpointGrace.AsDuration() != 5*time.Second {
		t.Errorf("is told to make room by %s@%s", j.Spec.CheckpointSignal, j.Spec.CheckpointGrace.AsDuration())
	}
	high := submitted(t, cc, alice, reqID(2), served("high", gpus(1, wholeOnly(spec(1)))))
	until(t, "the first is asked to make room", func() bool {
		j := job(t, cc, alice, low[0])
		return j.Reason == "Preempted" && strings.Contains(j.ReasonDetail, "qos high goes before qos scavenger")
	})
	a.Report(one, preempted, 0)
	a.Report(assigned(t, a, high[0]), running, 0)
	if j := await(t, cc, low[0], "QUEUED"); len(j.Attempts) != 1 {
		t.Errorf("%d attempts", len(j.Attempts))
	}
}

func charged(account string, s *apiv1.JobSpec) *apiv1.JobSpec { s.Account = account; return s }

func served(qos string, s *apiv1.JobSpec) *apiv1.JobSpec { s.Qos = qos; return s }

func limited(d time.Duration, s *apiv1.JobSpec) *apiv1.JobSpec {
	s.TimeLimit = durationpb.New(d)
	return s
}

func gpus(n uint32, s *apiv1.JobSpec) *apiv1.JobSpec { s.Gpus = n; return s }

func nice(n int32, s *apiv1.JobSpec) *apiv1.JobSpec { s.Nice = n; return s }

func wholeOnly(s *apiv1.JobSpec) *apiv1.JobSpec { s.Exclusive, s.GpuMemMib = true, 0; return s }

// fairly is a policy in which fair shares count.
func fairly() scheduler.Policy {
	pol := scheduler.Default()
	pol.FairMilli = 500
	return pol
}

// until waits for something to become so.
func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !so(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not so after two minutes: %s", what)
		}
	}
}
