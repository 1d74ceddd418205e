package openapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster/draws"
	"github.com/berth-scheduler/berth/cmd/internal/jsonout"
	"github.com/berth-scheduler/berth/cmd/internal/jsonout/jsontest"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"
)

var _ = draws.Fixed()

// shapeOf lists the keys of JSON with the kinds of their values; null is of any kind,
// and lists are of what their first element is.
func shapeOf(at string, v any, out map[string]string) {
	switch v := v.(type) {
	case map[string]any:
		for key, x := range v {
			if !strings.HasSuffix(at, ".sockets") { // by the number of the socket
				shapeOf(at+"."+key, x, out)
			}
		}
	case []any:
		if len(v) > 0 {
			shapeOf(at+"[]", v[0], out)
		}
	case nil:
		out[at] = "null"
	default:
		out[at] = fmt.Sprintf("%T", v)
	}
}

func shapeOfText(t *testing.T, text []byte) map[string]string {
	t.Helper()
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	shapeOf("", v, out)
	return out
}

// TestJSONAsRecorded: --json has every field of Slurm's, of the same kind, and no other.
func TestJSONAsRecorded(t *testing.T) {
	t.Parallel()
	at := time.Unix(1795512474, 0)
	running := slurm.Job{ID: 1, Name: "train", User: "root", Group: "root", Partition: "main", State: "RUNNING", Code: "R", Nodes: 1, NodeList: "n1", CPUs: 2, MinCPUs: 2, MinMemMiB: 100,
		MemUsedMiB: 100, Gres: "gres:gpu:1", GresUsed: "gpu:fake:1(IDX:0)", Submitted: at, Eligible: at, Started: at, Limit: 10 * time.Minute, Tasked: 1}
	node := slurm.Node{Name: "n1", Addr: "127.0.0.1", Host: "ctl-a", State: "MIXED", CPUs: 4, CPUsUsed: 2, MemMiB: 4000, MemUsed: 100, Gres: "gpu:fake:1", Partitions: []string{"main"}}
	for name, v := range map[string]any{"squeue.json": map[string]any{"meta": NewHead().Meta, "errors": NewHead().Errors, "jobs": []Job{NewJob(&running)}}, "sinfo.json": NewNodes([]slurm.Node{node})} {
		is, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		recorded, err := os.ReadFile("testdata/recorded/" + name)
		if err != nil {
			t.Fatal(err)
		}
		want, got := shapeOfText(t, recorded), shapeOfText(t, is)
		delete(want, ".jobs[].flags[]") // of Slurm's own scheduler; the list is empty here
		for key, kind := range want {
			if kind == "null" || got[key] == "null" { // what was not said there, or is not known here
				want[key] = got[key]
			}
		}
		if d := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got))); d != "" && strings.Contains(d, "\n-") {
			t.Errorf("%s: keys (-slurm +berth)\n%s", name, d)
		}
		for key := range got {
			if _, there := want[key]; !there {
				t.Errorf("%s: %s is not Slurm's", name, key)
			} else if want[key] != got[key] {
				t.Errorf("%s: %s is %s, Slurm's is %s", name, key, got[key], want[key])
			}
		}
	}
}

// TestJSONValues: what clients read of jobs in the states that Slurm knows.
func TestJSONValues(t *testing.T) {
	t.Parallel()
	at := time.Unix(1795512474, 0)
	held := slurm.Job{ID: 3, State: "PENDING", Code: "PD", Reason: "JobHeldUser", Submitted: at, Expected: at.Add(time.Hour), Limit: time.Hour}
	held.InArray(3, "0-5", 2)
	j := NewJob(&held)
	if j.ArrayJobID != 3 || j.ArrayTaskString != "0-5%2" || j.ArrayTaskID != nil || j.JobResources != nil || j.BillableTRES != nil || j.StartTime != at.Unix()+3600 || j.EndTime != at.Unix()+7200 || *j.TimeLimit != 60 {
		t.Errorf("an array that waits: %+v", j)
	}
	for _, tc := range []struct {
		code, signal int32
		wait         int64
		text         string
	}{
		{0, 0, 0, `{"status":"SUCCESS","return_code":0}`}, {3, 0, 768, `{"status":"ERROR","return_code":3}`},
		{143, 15, 15, `{"status":"SIGNALED","return_code":0,"signal":{"signal_id":15,"name":"Terminated"}}`},
	} {
		ended := slurm.Job{ID: 4, State: "FAILED", Code: "F", Started: at, Ended: at.Add(time.Minute), ExitCode: tc.code, Signal: tc.signal, Nodes: 1, NodeList: "n1", CPUs: 1, MaxRSSMiB: 3, CPUUsed: 1500 * time.Millisecond}
		a := NewAcct([]slurm.Job{ended}, true).Jobs[0]
		exit, err := json.Marshal(a.ExitCode)
		if err != nil || string(exit) != tc.text || waitStatus(&ended) != tc.wait {
			t.Errorf("code %d, signal %d: %s, %d", tc.code, tc.signal, exit, waitStatus(&ended))
		}
		if len(a.Steps) != 1 || a.Steps[0].Step.ID != "batch" || a.Time.Total != (acctSeconds{1, 500000}) {
			t.Fatalf("%+v", a)
		}
		if m := a.Steps[0].TRES.Requested.Max; len(m) != 2 || m[1] != tres("mem", "", idMem, 3<<20) {
			t.Errorf("use of the step: %+v", m)
		}
	}
	cancelled := slurm.Job{ID: 5, State: "CANCELLED by 1001", Ended: at}
	if a := acctJob(&cancelled); a.State.Current != "CANCELLED" || *a.KillRequestUser != "1001" || a.Nodes != "None assigned" || len(a.Steps) != 0 {
		t.Errorf("cancelled before it began: %+v", a)
	}
}

// TestJobsAsEncodingJSON: what is printed of a job is what encoding/json makes of it.
func TestJobsAsEncodingJSON(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e := jsonout.NewEncoder(2)
		for range 2 {
			var j Job
			jsontest.Fill(t, &j, map[reflect.Type][]reflect.Value{})
			want, err := jsontest.Naive(&j, 2)
			if err != nil {
				t.Skip(err)
			}
			if got, err := e.Append(nil, &j); err != nil || string(got) != want {
				t.Fatalf("%v\n%s\nwant\n%s", err, got, want)
			}
		}
	})
}
