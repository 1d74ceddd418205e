package sruncmd_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// TestAllocationOutlivesItsFirstLeader has the leader die at each step by which
// salloc begins and ends, after it did what it was asked and before it says so: there
// is one job, which is kept once, ended once, and never cancelled.
func TestAllocationOutlivesItsFirstLeader(t *testing.T) {
	t.Parallel()
	w, f := clitest.NewWorld(t), clitest.NewFake()
	f.Jobs = append(f.Jobs, &apiv1.Job{Id: 101, State: "RUNNING", Node: "n1", Name: "interactive", Spec: &apiv1.JobSpec{}})
	var mu sync.Mutex
	died := map[string]bool{}
	dies := func(step string) error {
		mu.Lock()
		defer mu.Unlock()
		if died[step] {
			return nil
		}
		died[step] = true
		return clitest.Refuse(cluster.CodeUnknown, "the connection broke")
	}
	f.Hook = func(_ context.Context, method string) error {
		switch method {
		case "SubmitJobs", "WatchJobs", "GetJob":
			return dies(method)
		case "CancelJobs":
			t.Errorf("the job is cancelled")
		}
		return nil
	}
	begun := map[string]string{} // commands by request id
	w.ServeAttach("/a", f, func(o *apiv1.AttachOpen, s clitest.AttachEnd) error {
		x := o.GetExec()
		what := strings.TrimPrefix(x.GetSession(), "kept-")
		if args := x.GetCommand(); len(args) > 0 {
			what = string(args[1])
			mu.Lock()
			begun[x.GetRequestId()] = what
			mu.Unlock()
		}
		if err := dies(what); err != nil {
			return err
		}
		opened := clitest.Opened(1, 0)
		opened.GetOpened().Session = "kept-" + what
		if err := clitest.Say(s, opened); err != nil {
			return err
		}
		if what == "end" {
			if len(x.GetCommand()) > 0 && x.GetKeep().AsDuration() == 0 { // its node ends it when the connection breaks
				t.Error("the end is not kept")
			}
			if err := dies("answer"); err != nil {
				return err
			}
			return clitest.Say(s, clitest.EndedBy(&apiv1.AttachEnded{}))
		}
		if err := clitest.Say(s, &apiv1.AttachResponse{Kind: &apiv1.AttachResponse_Stdout{Stdout: []byte("kept\n")}}); err != nil {
			return err
		}
		<-s.Context().Done()
		return nil
	})
	var ids []string
	w.Env.RequestID = func() string {
		id := strings.Repeat("r", 16) + string(rune('a'+len(ids)))
		ids = append(ids, id)
		return id
	}
	if code := w.Run("salloc", "sh", "-c", "exit 5"); code != 5 {
		t.Errorf("exit code %d: %s", code, w.Errs.String())
	}
	f.Mu.Lock()
	defer f.Mu.Unlock()
	if len(f.Submitted) != 1 || len(f.Requests) < 2 {
		t.Errorf("%d jobs of %d requests", len(f.Submitted), len(f.Requests))
	}
	for _, step := range []string{"SubmitJobs", "WatchJobs", "GetJob", "keep", "end", "answer"} {
		if !died[step] {
			t.Errorf("%s was never asked for", step)
		}
	}
	of := map[string]int{}
	for _, what := range begun {
		of[what]++
	}
	if len(of) != 2 || of["keep"] != 1 || of["end"] != 1 {
		t.Errorf("the job's node was asked for %v", begun)
	}
}
