package coordinator_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/policies"
	"github.com/berth-scheduler/berth/scheduler/site"
)

// chosen makes a policy as the daemon does.
func chosen(t testing.TB, name string) site.Chosen {
	t.Helper()
	pol := scheduler.Default()
	place, order, _ := strings.Cut(name, "+")
	if place == "slot" {
		pol.Mode = scheduler.ModeSlot
	}
	if order == "" && (place == "slot" || place == "ffd") {
		return site.Chosen{Policy: pol}
	}
	p, err := policies.New(name, policies.Options{Base: pol, Age: pol.FIFOAge, HoldAge: pol.FIFOAge})
	if err != nil {
		t.Fatal(err)
	}
	return site.Chosen{Policy: pol, Planner: p}
}

func setPartition(t *testing.T, cc *grpc.ClientConn, req *apiv1.SetPartitionRequest) *apiv1.SetPartitionResponse {
	t.Helper()
	resp, err := apirpc.NewClusterServiceClient(cc).SetPartition(as(t, admin), req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func in(partition string, s *apiv1.JobSpec) *apiv1.JobSpec {
	s.Partition = partition
	return s
}

// TestTwoPoliciesInOneCluster: a partition by slot and one by ffd, each with a
// node: two small jobs share a card in the one and not in the other, and
// nobody lands on another partition's node.
func TestTwoPoliciesInOneCluster(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1, Partitions: map[string]site.Chosen{"whole": chosen(t, "slot+fifo"), "shared": chosen(t, "ffd")}})
	cc := c.Dial(0, "gate", "g")
	a, b := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1")), c.Agent(0, "n2", "b1", coordtest.T4("GPU-2"))
	setPartition(t, cc, &apiv1.SetPartitionRequest{Name: "whole", Nodes: proto.String("n1"), Default: proto.Bool(true)})
	setPartition(t, cc, &apiv1.SetPartitionRequest{Name: "shared", Nodes: proto.String("n2")})
	ids := submitted(t, cc, alice, reqID(1), spec(2000), spec(2000), in("shared", spec(2000)), in("shared", spec(2000)))
	one, two, three := assigned(t, a, ids[0]), assigned(t, b, ids[2]), assigned(t, b, ids[3])
	a.Report(one, running, 0)
	b.Report(two, running, 0)
	b.Report(three, running, 0)
	if j := await(t, cc, ids[0], "RUNNING"); j.Node != "n1" || !j.Gpus[0].Share.Exclusive || j.Partition != "whole" {
		t.Errorf("runs as %v, want the whole card of n1", j)
	}
	if j := await(t, cc, ids[3], "RUNNING"); j.Node != "n2" || j.Gpus[0].Share.Exclusive || !slices.Contains(j.Neighbours, ids[2]) {
		t.Errorf("runs as %v, want a share of n2's card", j)
	}
	if j := job(t, cc, alice, ids[1]); j.State != "PENDING" {
		t.Errorf("the second is %s on %s, want PENDING", j.State, j.Node)
	}
	a.Report(one, completed, 0)
	two = assigned(t, a, ids[1])
	a.Report(two, running, 0)
	if j := await(t, cc, ids[1], "RUNNING"); j.Node != "n1" {
		t.Errorf("runs on %s, want n1", j.Node)
	}
	list, err := apirpc.NewClusterServiceClient(cc).ListPartitions(as(t, alice), &apiv1.ListPartitionsRequest{})
	if err != nil || len(list.Partitions) != 2 {
		t.Fatalf("%v, %v", list, err)
	}
	if p := list.Partitions[1]; p.Name != "whole" || p.Policy != "slot+fifo" || !p.Default || p.NodesReady != 1 || p.GpusUsed != 1 || p.JobsRunning != 1 || p.JobsWaiting != 0 {
		t.Errorf("listed as %v", p)
	}
}

// TestQueuesOfPartitions: the scheduler's own policies queue at the cards of
// the partition, and the fast path starts who is next.
func TestQueuesOfPartitions(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	c.Agent(0, "n2", "b1", coordtest.T4("GPU-2"))
	setPartition(t, cc, &apiv1.SetPartitionRequest{Name: "a", Nodes: proto.String("n1")})
	ids := submitted(t, cc, alice, reqID(1), in("a", spec(10_000)), in("a", spec(10_000)), in("a", spec(10_000)))
	for _, id := range ids {
		as := assigned(t, a, id)
		a.Report(as, running, 0)
		for _, later := range ids {
			if later > id {
				if j := await(t, cc, later, "QUEUED"); j.Queue != "GPU-1" {
					t.Errorf("job %d waits at %s, want GPU-1", later, j.Queue)
				}
			}
		}
		a.Report(as, completed, 0)
	}
}

// TestReleaseOnSharedCards: the fast path starts who is next on a card that
// several partitions have, while only one of them waits; when both do, only a
// full pass says whose turn it is. Everybody runs, the older first.
func TestReleaseOnSharedCards(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	c := coordtest.Start(t, coordtest.Options{N: 1, Registry: reg})
	cc := c.Dial(0, "gate", "g")
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	setPartition(t, cc, &apiv1.SetPartitionRequest{Name: "a", Nodes: proto.String("n1")})
	setPartition(t, cc, &apiv1.SetPartitionRequest{Name: "b", Nodes: proto.String("ALL")})
	run := func(id uint64) *nodev1.Assignment {
		as := assigned(t, a, id)
		a.Report(as, running, 0)
		await(t, cc, id, "RUNNING")
		return as
	}
	// The fast path starts who is short beside all that is to be done.
	long, short := in("a", spec(10_000)), in("a", spec(10_000))
	long.Expected, short.Expected = durationpb.New(100*time.Hour), durationpb.New(time.Minute)
	ids := make([]uint64, 2)
	for i, js := range []*apiv1.JobSpec{long, short} {
		id := submitted(t, cc, alice, reqID(1+100*i), js)
		if ids[i] = id[0]; i == 0 {
			await(t, cc, id[0], "STARTING")
		}
	}
	first := run(ids[0])
	await(t, cc, ids[1], "QUEUED")
	was := started(t, reg, "release")
	a.Report(first, completed, 0)
	second := run(ids[1])
	if n := started(t, reg, "release"); n != was+1 {
		t.Errorf("%v starts of the fast path, want one more than %v", n, was)
	}
	more := submitted(t, cc, alice, reqID(2), in("b", spec(10_000)))
	await(t, cc, more[0], "QUEUED")
	last := submitted(t, cc, alice, reqID(3), in("a", spec(10_000)))
	await(t, cc, last[0], "QUEUED")
	// Until a full pass has seen both wait, the fast path may be right.
	full := passes(t, reg)
	for deadline := time.Now().Add(2 * time.Minute); passes(t, reg) < full+2; {
		if time.Now().After(deadline) {
			t.Fatal("no full passes")
		}
		setPartition(t, cc, &apiv1.SetPartitionRequest{Name: "b"}) // something changes
	}
	was = started(t, reg, "release")
	a.Report(second, completed, 0)
	left := []uint64{more[0], last[0]}
	third := next(t, a)
	a.Report(third, running, 0)
	a.Report(third, completed, 0)
	left = slices.DeleteFunc(left, func(id uint64) bool { return id == third.Job })
	if len(left) != 1 {
		t.Fatalf("job %d starts", third.Job)
	}
	if n := started(t, reg, "release"); n != was {
		t.Errorf("%v starts of the fast path, want %v: both partitions wait", n, was)
	}
	run(left[0])
}

// started is how many attempts were placed by a kind of pass, passes how many
// full ones there were.
func started(t *testing.T, reg *prometheus.Registry, kind string) float64 {
	return labelled(t, reg, "berth_scheduler_started_total", kind)
}

func passes(t *testing.T, reg *prometheus.Registry) float64 {
	return labelled(t, reg, "berth_scheduler_cycle_seconds", "full")
}

func labelled(t *testing.T, reg *prometheus.Registry, name, kind string) float64 {
	t.Helper()
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && m.GetLabel()[0].GetValue() == kind {
				return m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return 0
}

// TestDeadlinesOfPartitions: what is promised counts the GPUs of the partition
// only, and no GPU that belongs to two is promised twice.
func TestDeadlinesOfPartitions(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"), coordtest.T4("GPU-2"), coordtest.T4("GPU-3"), coordtest.T4("GPU-4"))
	c.Agent(0, "n2", "b1", coordtest.T4("GPU-5"), coordtest.T4("GPU-6"), coordtest.T4("GPU-7"), coordtest.T4("GPU-8"))
	setPartition(t, cc, &apiv1.SetPartitionRequest{Name: "a", Nodes: proto.String("n1")})
	due := func(part string) *apiv1.JobSpec {
		s := in(part, spec(10_000))
		s.TimeLimit, s.DeadlineIn = durationpb.New(time.Hour), durationpb.New(90*time.Minute)
		return s
	}
	// A half of the four GPUs is for deadlines.
	if _, err := submit(t, cc, alice, reqID(1), due("a"), due("a"), due("a")); err == nil || !strings.Contains(err.Error(), "cannot be met") {
		t.Errorf("three jobs on two GPUs: %v", err)
	}
	setPartition(t, cc, &apiv1.SetPartitionRequest{Name: "b", Nodes: proto.String("n1")})
	// Now each of the two partitions has a quarter.
	if _, err := submit(t, cc, alice, reqID(2), due("a"), due("a")); err == nil || !strings.Contains(err.Error(), "cannot be met") {
		t.Errorf("two jobs on one GPU: %v", err)
	}
	if _, err := submit(t, cc, alice, reqID(3), due("a"), due("b")); err != nil {
		t.Error(err)
	}
}

// TestPartitionsAreJudgedAtSubmit: what a partition does not allow is refused
// in figures, and a cluster without partitions takes the scripts of others.
func TestPartitionsAreJudgedAtSubmit(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	c.Agent(0, "n2", "b1", coordtest.T4("GPU-2"), coordtest.T4("GPU-3"))
	jobs := apirpc.NewJobServiceClient(cc)
	resp, err := jobs.SubmitJobs(as(t, alice), &apiv1.SubmitJobsRequest{RequestId: reqID(0), Jobs: []*apiv1.JobSpec{in("gpu", spec(0))}})
	if err != nil || len(resp.Warnings) != 1 || !strings.Contains(resp.Warnings[0], "has no partitions") {
		t.Errorf("without partitions: %v, %v", resp, err)
	}
	admins := apirpc.NewClusterServiceClient(cc)
	if _, err := admins.SetPartition(as(t, alice), &apiv1.SetPartitionRequest{Name: "a", Nodes: proto.String("n1")}); err == nil || !strings.Contains(err.Error(), "only an administrator") {
		t.Errorf("a user sets a partition: %v", err)
	}
	if w := setPartition(t, cc, &apiv1.SetPartitionRequest{Name: "a", Nodes: proto.String("n[1,8-9]"), MaxTime: durationpb.New(time.Hour), GpuTypes: []string{"H100", "T4"}, SetGpuTypes: true}).Warnings; len(w) != 2 ||
		!strings.Contains(w[0], "no such node yet: n8, n9") || !strings.Contains(w[1], "type H100") {
		t.Errorf("warnings %q", w)
	}
	two := spec(2000)
	two.Gpus = 2
	long := spec(0)
	long.TimeLimit = durationpb.New(2 * time.Hour)
	elsewhere := spec(0)
	elsewhere.Node = "n2"
	for i, x := range []struct {
		spec *apiv1.JobSpec
		want string
	}{
		{spec(0), "no partition is named, and none is the default: name one of a with --partition (-p); an administrator can make one the default with berth partition set a --default"},
		{in("b", spec(0)), `partition "b" is not known; the partitions are a`},
		{in("a", long), "time: 2h is above the limit of partition a, 1h"},
		{in("a", elsewhere), "node n2 is not in partition a, which has n[1,8-9]"},
		{in("a", two), "in partition a: never satisfiable: 2 GPUs"},
		{in("a b", spec(0)), "may hold letters, digits"},
	} {
		if _, err := submit(t, cc, alice, reqID(i+1), x.spec); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("got %v, want %q", err, x.want)
		}
	}
	setPartition(t, cc, &apiv1.SetPartitionRequest{Name: "a", Default: proto.Bool(true), Down: proto.Bool(true)})
	resp, err = jobs.SubmitJobs(as(t, alice), &apiv1.SubmitJobsRequest{RequestId: reqID(20), Jobs: []*apiv1.JobSpec{spec(2000)}})
	if err != nil || len(resp.Warnings) != 1 || !strings.Contains(resp.Warnings[0], "is down") {
		t.Fatalf("while it is down: %v, %v", resp, err)
	}
	j := job(t, cc, alice, resp.Ids[0])
	if j.Reason != "PartitionDown" || j.Spec.TimeLimit.AsDuration() != time.Hour || j.Partition != "a" {
		t.Errorf("waits as %v", j)
	}
	why, err := jobs.ExplainJob(as(t, alice), &apiv1.ExplainJobRequest{Id: resp.Ids[0]})
	if err != nil || len(why.Explanations) == 0 || why.Explanations[0].Code != "PartitionDown" || why.Forecast != nil {
		t.Errorf("why: %v, %v", why, err)
	}
	if _, err := admins.RemovePartition(as(t, admin), &apiv1.RemovePartitionRequest{Name: "a"}); err == nil || !strings.Contains(err.Error(), "1 jobs that wait") {
		t.Errorf("a partition with jobs is removed: %v", err)
	}
	setPartition(t, cc, &apiv1.SetPartitionRequest{Name: "a", Down: proto.Bool(false)})
	await(t, cc, resp.Ids[0], "STARTING")
	list, err := jobs.ListJobs(as(t, alice), &apiv1.ListJobsRequest{Partitions: []string{"a"}})
	if err != nil || len(list.Jobs) != 1 || list.Jobs[0].Partition != "a" {
		t.Errorf("listed %v, %v", list, err)
	}
	nodes, err := admins.ListNodes(as(t, alice), &apiv1.ListNodesRequest{})
	if err != nil || fmt.Sprint(nodes.Nodes[0].Partitions, nodes.Nodes[1].Partitions) != "[a] []" {
		t.Errorf("nodes %v, %v", nodes, err)
	}
}

// TestNetworksOfPartitions: a job that does not choose gets the partition's
// first, and one that chooses another learns who said so.
func TestNetworksOfPartitions(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	admins := apirpc.NewClusterServiceClient(cc)
	set := &apiv1.SetPartitionRequest{Name: "a", Nodes: proto.String("n1"), Default: proto.Bool(true), SetNetworks: true, Networks: []string{"bridge"}}
	if _, err := admins.SetPartition(as(t, admin), set); err == nil || !strings.Contains(err.Error(), "neither host nor none") {
		t.Errorf("a bridge: %v", err)
	}
	set.Networks = []string{"none"}
	if p := setPartition(t, cc, set).Partition; !slices.Equal(p.Networks, []string{"none"}) {
		t.Errorf("shown as %v", p)
	}
	host := spec(0)
	host.Container = &apiv1.Container{Network: "host"}
	if _, err := submit(t, cc, alice, reqID(1), host); err == nil || !strings.Contains(err.Error(), "net host: partition a allows its jobs only none, as its administrators set it (berth partition show a)") {
		t.Errorf("host in a partition without: %v", err)
	}
	ids := submitted(t, cc, alice, reqID(2), spec(0))
	if got := job(t, cc, alice, ids[0]).Spec.GetContainer().GetNetwork(); got != "none" {
		t.Errorf("a job that does not choose gets %q", got)
	}
}

// TestPartitionsBoundTheGPUsOfAJob: on all its nodes, also where others take it.
func TestPartitionsBoundTheGPUsOfAJob(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"), coordtest.T4("GPU-2"))
	if p := setPartition(t, cc, &apiv1.SetPartitionRequest{Name: "small", Nodes: proto.String("n1"), Default: proto.Bool(true), MaxGpus: proto.Int64(1)}).Partition; p.GetMaxGpus() != 1 {
		t.Errorf("shown as %v", p)
	}
	two := spec(0)
	two.Gpus = 2
	if _, err := submit(t, cc, alice, reqID(1), two); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "a job in partition small may have at most 1, but asks for 2") {
		t.Errorf("two GPUs: %v", err)
	}
	setPartition(t, cc, &apiv1.SetPartitionRequest{Name: "large", Nodes: proto.String("n1")})
	two.Partition = "small,large"
	ids := submitted(t, cc, alice, reqID(2), two)
	if p := job(t, cc, alice, ids[0]).Spec.GetPartition(); p != "large" {
		t.Errorf("it goes to partition %q", p)
	}
}

// TestPartitionsLend: who begins to lend lends to short jobs for a minute unless that is said;
// what is not said stays; a name that nobody has is warned of.
func TestPartitionsLend(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	set := func(req *apiv1.SetPartitionRequest, to string, short time.Duration) []string {
		t.Helper()
		req.Name = "serve"
		r := setPartition(t, cc, req)
		if got := strings.Join(r.Partition.LendTo, " "); got != to || r.Partition.LendShort.AsDuration() != short {
			t.Errorf("lends to %q, for %s, want %q, %s", got, r.Partition.LendShort.AsDuration(), to, short)
		}
		return r.Warnings
	}
	set(&apiv1.SetPartitionRequest{Nodes: proto.String("n1")}, "", 0)
	if w := set(&apiv1.SetPartitionRequest{SetLendTo: true, LendTo: []string{"train", "batch"}}, "train batch", time.Minute); len(w) != 2 || !strings.Contains(w[0], "no such partition yet: train") {
		t.Errorf("warned of %q", w)
	}
	set(&apiv1.SetPartitionRequest{LendShort: durationpb.New(0)}, "train batch", 0)
	set(&apiv1.SetPartitionRequest{SetLendTo: true, LendTo: []string{"train"}}, "train", 0)
	set(&apiv1.SetPartitionRequest{SetLendTo: true}, "", 0)
	set(&apiv1.SetPartitionRequest{SetLendTo: true, LendTo: []string{"train"}, LendShort: durationpb.New(time.Hour)}, "train", time.Hour)
}

// TestIdleSessionsOfPartitions: the limit is stored, shown, and sent along with
// what begins in the partition.
func TestIdleSessionsOfPartitions(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	set := &apiv1.SetPartitionRequest{Name: "a", Nodes: proto.String("n1"), Default: proto.Bool(true), SessionIdle: durationpb.New(2 * time.Hour)}
	if p := setPartition(t, cc, set).Partition; p.GetSessionIdle().AsDuration() != 2*time.Hour {
		t.Errorf("shown as %v", p)
	}
	submitted(t, cc, alice, reqID(1), spec(0))
	select {
	case as := <-a.Assigned:
		if as.GetSessionIdle().AsDuration() != 2*time.Hour {
			t.Errorf("sent along: %v", as)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("nothing is assigned")
	}
	if p := setPartition(t, cc, &apiv1.SetPartitionRequest{Name: "a", SessionIdle: durationpb.New(0)}).Partition; p.SessionIdle != nil {
		t.Errorf("taken back it is shown as %v", p)
	}
}

// TestWarningsAreHeldAgainstTheLimit: also against one that the partition
// gave.
func TestWarningsAreHeldAgainstTheLimit(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	warned := spec(0)
	warned.Warning = &apiv1.Warning{Signal: "USR1", Before: durationpb.New(time.Minute)}
	jobs := apirpc.NewJobServiceClient(cc)
	resp, err := jobs.SubmitJobs(as(t, alice), &apiv1.SubmitJobsRequest{RequestId: reqID(1), Jobs: []*apiv1.JobSpec{warned}})
	if err != nil || len(resp.Warnings) != 1 || !strings.Contains(resp.Warnings[0], "is never sent, since the job has no time limit") {
		t.Errorf("without a limit: %v, %v", resp, err)
	}
	setPartition(t, cc, &apiv1.SetPartitionRequest{Name: "a", Nodes: proto.String("n1"), Default: proto.Bool(true), DefaultTime: durationpb.New(30 * time.Second)})
	if _, err := submit(t, cc, alice, reqID(2), warned); err == nil || !strings.Contains(err.Error(), "the partition's default time") {
		t.Errorf("with the partition's limit: %v", err)
	}
}

// TestVainWishesAreWarnedOf: what has no effect in this cluster is not taken
// without a word.
func TestVainWishesAreWarnedOf(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	c.Agent(0, "n2", "b1", coordtest.T4("GPU-2"))
	jobs := apirpc.NewJobServiceClient(cc)
	for i, x := range []struct {
		set  func(*apiv1.JobSpec)
		want string
	}{
		{func(s *apiv1.JobSpec) { s.Where = &apiv1.Where{Exclude: "n2"} }, ""},
		{func(s *apiv1.JobSpec) { s.Where = &apiv1.Where{Exclude: "n2,n9"} }, "exclude: n9 is not registered, which excludes nothing; berth node list shows the names"},
		{func(s *apiv1.JobSpec) { s.Where = &apiv1.Where{Exclude: "n[2-9]"} }, "exclude: n3 and 6 more are not registered"},
		{func(s *apiv1.JobSpec) { s.MaxCostMilli = 1 }, "max-cost: nothing has a price here"},
		{func(s *apiv1.JobSpec) { s.Defer = durationpb.New(time.Hour) }, "defer: this cluster does not know what power costs"},
	} {
		s := spec(0)
		x.set(s)
		resp, err := jobs.SubmitJobs(as(t, alice), &apiv1.SubmitJobsRequest{RequestId: reqID(i + 1), Jobs: []*apiv1.JobSpec{s}})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(resp.Warnings, "; "); !strings.HasPrefix(got, x.want) || x.want == "" && got != "" {
			t.Errorf("warned of %q, want %q", got, x.want)
		}
	}
}
