package endpoints

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/cluster/service"
	"github.com/berth-scheduler/berth/fsm"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// state is one with a service of three replicas, of which the first is ready, the second
// starts and the third is draining, and a ready one of another user's.
func state(t *testing.T) *fsm.FSM {
	f := fsm.New(fsm.Options{})
	index := uint64(0)
	do := func(cmd *logv1.Command) {
		t.Helper()
		index++
		data, err := fsm.EncodeEntry(fsm.EntryVersion, 1, cluster.Time(1_700_000_000_000_000).Add(time.Duration(index)*time.Second), []*logv1.Command{cmd})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range f.Apply(&raft.Log{Index: index, Term: 1, Data: data}).([]fsm.Result) {
			if r.Err != nil || r.Plan != nil && len(r.Plan.Rejected) > 0 {
				t.Fatalf("%v: %+v", cmd, r)
			}
		}
	}
	do(&logv1.Command{Kind: &logv1.Command_RegisterNode{RegisterNode: &logv1.RegisterNode{Node: conv.NodeToLog(&cluster.Node{ID: "n1", BootID: "b", State: cluster.NodeReady, CPUMilli: 64_000, MemMiB: 65_536, Address: "10.0.0.1:7"})}}})
	tasks, err := cluster.ParseTasks("0-2")
	if err != nil {
		t.Fatal(err)
	}
	for i, user := range []string{"ada", "bob"} {
		s := &cluster.Spec{Name: "j", Command: []string{"x"}, Dir: "/", CPUMilli: 1000, MemMiB: 64, Array: &cluster.Array{Tasks: tasks, Throttle: 3}, Service: &service.Service{Name: "web", Replicas: 3, Min: 1, Max: 3, Port: "http"}}
		do(&logv1.Command{Kind: &logv1.Command_SubmitJob{SubmitJob: &logv1.SubmitJob{
			FirstJob: uint64(3*i + 1), RequestId: "request-number-" + user, BodyHash: make([]byte, 32), Owner: conv.OwnerToLog(cluster.Owner{UID: cluster.UID(1000 + i), Name: user}),
			Jobs: []*logv1.NewJob{{Spec: conv.SpecToLog(s)}},
		}}})
	}
	for id, stands := range map[cluster.JobID]service.State{1: service.Ready, 2: service.Starting, 3: service.Draining, 4: service.Ready} {
		do(&logv1.Command{Kind: &logv1.Command_ApplyPlan{ApplyPlan: conv.PlanToLog(&dispatch.Plan{Starts: []dispatch.Start{{Job: id, Attempt: 1, Port: 20_000 + uint16(id), Berth: cluster.Berth{Node: "n1", CPUMilli: 1000, MemMiB: 64}}}})}})
		j, _ := f.Job(id)
		do(&logv1.Command{Kind: &logv1.Command_ReportAttempt{ReportAttempt: &logv1.ReportAttempt{Node: "n1", Job: uint64(id), Attempt: 1, Token: uint64(j.Last().Token), State: uint32(cluster.JobRunning)}}})
		do(&logv1.Command{Kind: &logv1.Command_NoteProgress{NoteProgress: &logv1.NoteProgress{Attempts: []*logv1.AttemptProgress{conv.NoteServing(cluster.AttemptID{Job: id, No: 1}, cluster.Serving{State: stands})}}}})
	}
	do(&logv1.Command{Kind: &logv1.Command_CancelJob{CancelJob: &logv1.CancelJob{Job: 4}}})
	return f
}

// TestEndpoints: those that take requests are listed, of the service and the user that are
// asked for, and one that somebody ended is not.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	h := Handler(state(t))
	for path, want := range map[string]int{"/services": 1, "/services/web": 1, "/services/other": 0, "/services?user=ada": 1, "/services/web?user=bob": 0} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
		var got []Group
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != http.StatusOK || got == nil || w.Header().Get("Content-Type") != "application/json" {
			t.Fatalf("%s: %d %s: %v", path, w.Code, w.Body, err)
		}
		if len(got) != want {
			t.Errorf("%s: %v, want %d", path, got, want)
		}
		for _, g := range got {
			if len(g.Targets) != 1 || g.Targets[0] != "10.0.0.1:20001" || g.Labels["service"] != "web" || g.Labels["user"] != "ada" || g.Labels["node"] != "n1" || g.Labels["port"] != "http" || g.Labels["replica"] != "1-0" {
				t.Errorf("%s: %v", path, g)
			}
		}
	}
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/services", http.NoBody)); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
}
