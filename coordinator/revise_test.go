package coordinator_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// change submits what changes of a service, and returns what differs in words.
func change(t *testing.T, cc *grpc.ClientConn, uid uint32, id string, s *apiv1.JobSpec, fields ...string) (*apiv1.SubmitJobsResponse, error) {
	s.Change = &apiv1.ServiceChange{Fields: fields}
	if s.Service == nil {
		s.Service = &apiv1.Service{}
	}
	s.Service.Name = "web"
	return apirpc.NewJobServiceClient(cc).SubmitJobs(coordtest.As(t.Context(), uid), &apiv1.SubmitJobsRequest{RequestId: id, Jobs: []*apiv1.JobSpec{s}})
}

// TestAServiceChanges in what is named alone: its script, its environment and all that was
// said of it stay.
func TestAServiceChanges(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	c.Agent(0, "n7", "b7", coordtest.T4("GPU-7"))
	if _, err := change(t, cc, alice, reqID(9), &apiv1.JobSpec{}, "gpu_mem_mib"); err == nil || !strings.Contains(err.Error(), "you have none of that name") {
		t.Errorf("where none runs: %v", err)
	}
	large := strings.Repeat("x", 4000) // with others so much that it lies outside of the spec
	s := spec(2000)
	s.Comment = "kept"
	for _, name := range []string{"A", "B", "C", "D", "E"} {
		s.Env = append(s.Env, []byte(name+"="+large))
	}
	s.Where = &apiv1.Where{Exclude: "n7"}
	s.Service = &apiv1.Service{Name: "web", Replicas: 2, Least: 1, Most: 4, Health: "/healthz", Drain: durationpb.New(0)}
	s.Array = "0-3%2"
	ids := submitted(t, cc, alice, reqID(1), s)
	first := ids[0]

	resp, err := change(t, cc, alice, reqID(2), &apiv1.JobSpec{GpuMemMib: 3000, Service: &apiv1.Service{Fails: 7}}, "gpu_mem_mib", "service.fails")
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"gpu-mem 2.0 GiB → 2.9 GiB", "fails 3 → 7"}; !slices.Equal(resp.Changes, want) {
		t.Errorf("it says %q, want %q", resp.Changes, want)
	}
	got := job(t, cc, alice, resp.Ids[0]).GetSpec()
	v := got.GetService()
	if resp.Ids[0] == first || got.GetGpuMemMib() != 3000 || got.GetComment() != "kept" || len(got.GetEnv()) != 5 || len(got.GetEnv()[0]) != len(large)+2 ||
		!slices.EqualFunc(got.GetCommand(), s.Command, slices.Equal) || got.GetWhere().GetExclude() != "n7" ||
		v.GetFails() != 7 || v.GetHealth() != "/healthz" || v.GetReplicas() != 2 || v.GetMost() != 4 || v.GetDrain().AsDuration() != 0 || got.GetChange() != nil {
		got.Env = nil
		t.Errorf("the new revision is %v", got)
	}
	// As many replicas as there are to be now, unless others are asked for.
	if _, err := apirpc.NewJobServiceClient(cc).ControlJobs(coordtest.As(t.Context(), alice), &apiv1.ControlJobsRequest{
		RequestId: reqID(3), Ids: []uint64{resp.Ids[0]}, Action: apiv1.JobAction_JOB_ACTION_THROTTLE, Throttle: 3,
	}); err != nil {
		t.Fatal(err)
	}
	if resp, err = change(t, cc, alice, reqID(4), &apiv1.JobSpec{}); err != nil || len(resp.Changes) != 0 {
		t.Fatalf("nothing changes: %v, %v", resp, err)
	}
	if v := job(t, cc, alice, resp.Ids[0]).GetSpec().GetService(); v.GetReplicas() != 3 || v.GetFails() != 7 {
		t.Errorf("after it was scaled: %v", v)
	}
	if resp, err = change(t, cc, alice, reqID(5), &apiv1.JobSpec{Command: [][]byte{[]byte("new")}, Service: &apiv1.Service{Replicas: 1, Most: 2}}, "command", "script", "where.exclude", "service.replicas", "service.most"); err != nil {
		t.Fatal(err)
	}
	m := job(t, cc, alice, resp.Ids[0])
	if v := m.GetSpec().GetService(); v.GetReplicas() != 1 || v.GetMost() != 2 || m.GetArray().GetSize() != 2 || m.GetSpec().GetWhere() != nil || string(m.GetSpec().GetCommand()[0]) != "new" || m.GetSpec().GetGpuMemMib() != 3000 {
		t.Errorf("the last revision is %.500v", m.GetSpec())
	}
	for fields, want := range map[string]string{
		"no_such":                       "cannot be changed for a service",
		"service.name":                  "cannot be changed for a service",
		"array":                         "cannot be changed for a service",
		"gpus.x":                        "cannot be changed for a service",
		"command.x":                     "cannot be changed for a service",
		strings.Repeat("comment ", 101): "at most 100 are allowed",
		"command":                       "command",
		"service.fails service.most":    "replicas: 0 is outside",
	} {
		if _, err := change(t, cc, alice, reqID(6), &apiv1.JobSpec{}, strings.Fields(fields)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %v, want %s", fields, err, want)
		}
	}
	if _, err := change(t, cc, bob, reqID(7), &apiv1.JobSpec{}, "comment"); err == nil || !strings.Contains(err.Error(), "you have none") {
		t.Errorf("another user changes it: %v", err)
	}
}

// TestWhyAReplicaRestarts: while a replica waits to be started again, its owner sees how its
// last attempt ended, and when the next one begins; others see only that it waits.
func TestWhyAReplicaRestarts(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	agent := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	s := spec(2000)
	s.Service, s.Array = &apiv1.Service{Name: "web", Replicas: 1, Least: 1, Most: 2}, "0-1%1"
	id := submitted(t, cc, alice, reqID(1), s)[0]
	go func() { // each time it waits longer for the next one
		for as := range agent.Assigned {
			agent.Report(as, nodev1.AttemptState_ATTEMPT_STATE_FAILED, 127)
		}
	}()
	client, task := apirpc.NewJobServiceClient(cc), uint32(0)
	for who, want := range map[uint32]string{alice: "ended as FAILED (NonZeroExitCode: exit code 127); the next one begins at ", bob: "not before "} {
		eventually(t, "the explanation says "+want, func() bool {
			why, err := client.ExplainJob(coordtest.As(t.Context(), who), &apiv1.ExplainJobRequest{Id: id, Task: &task})
			if err != nil {
				t.Fatal(err)
			}
			e := why.Explanations
			return len(e) > 0 && e[0].Code == "BeginTime" && strings.Contains(e[0].Detail, want)
		})
		eventually(t, "the forecast begins after that", func() bool {
			all, err := client.ListForecasts(coordtest.As(t.Context(), who), &apiv1.ListForecastsRequest{Ids: []uint64{id}})
			if err != nil {
				t.Fatal(err)
			}
			return len(all.Forecasts) > 0 && all.Forecasts[0].GetForecast().GetStartP50().GetSeconds() > job(t, cc, alice, id).Submitted.GetSeconds()
		})
	}
}
