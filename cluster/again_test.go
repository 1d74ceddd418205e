package cluster

import (
	"strings"
	"testing"
	"time"
)

func TestParseRetryOn(t *testing.T) {
	t.Parallel()
	exit := func(code, signal int32) *Attempt {
		return &Attempt{State: JobFailed, Exit: &Exit{Code: code, Signal: signal}}
	}
	unstarted, lost, oom, late := &Attempt{State: JobFailed}, &Attempt{State: JobNodeFail}, &Attempt{State: JobOutOfMemory, Exit: &Exit{Code: 137, Signal: 9}}, &Attempt{State: JobTimeout}
	done, gone, moved := &Attempt{State: JobCompleted, Exit: &Exit{}}, &Attempt{State: JobCancelled, Exit: &Exit{Code: 75}}, &Attempt{State: JobPreempted, Exit: &Exit{Code: 75}}
	for _, c := range []struct {
		on        string
		named, no []*Attempt
	}{
		{"", []*Attempt{exit(1, 0), exit(137, 9), unstarted, lost}, []*Attempt{oom, late, done, gone, moved}},
		{"75", []*Attempt{exit(75, 0)}, []*Attempt{exit(74, 0), exit(1, 0), unstarted, lost, oom, late, done, gone, moved}},
		{"64-78,1", []*Attempt{exit(1, 0), exit(64, 0), exit(78, 0)}, []*Attempt{exit(63, 0), exit(79, 0), exit(2, 0)}},
		{"1-255", []*Attempt{exit(1, 0), exit(255, 0), exit(139, 11)}, []*Attempt{exit(0, 0), unstarted, oom, done}},
		{"137", []*Attempt{exit(137, 9)}, []*Attempt{oom, exit(9, 0)}},
		{"node_fail,Timeout", []*Attempt{lost, late}, []*Attempt{exit(1, 0), oom}},
		{"OUT_OF_MEMORY", []*Attempt{oom}, []*Attempt{exit(137, 9), late}},
	} {
		on, err := ParseRetryOn(c.on)
		if err != nil {
			t.Errorf("%q: %v", c.on, err)
		}
		for _, a := range c.named {
			if !on.Names(a) {
				t.Errorf("%q does not name %s %+v", c.on, a.State, a.Exit)
			}
		}
		for _, a := range c.no {
			if on.Names(a) {
				t.Errorf("%q names %s %+v", c.on, a.State, a.Exit)
			}
		}
	}
	for _, bad := range []string{"0", "256", "-1", "5-", "-5", "9-3", "1-256", "COMPLETED", "CANCELLED", "PREEMPTED", "1,,2", ",", " 75", "75 ", "1.5", "0x10", strings.Repeat("1,", 200) + "1"} {
		if _, err := ParseRetryOn(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestRetries(t *testing.T) {
	t.Parallel()
	at := func(seconds int) Time { return Time(time.Duration(seconds) * time.Second / time.Microsecond) }
	failed := func(code int32, ran int) Attempt {
		return Attempt{State: JobFailed, Exit: &Exit{Code: code}, Started: at(10), Ended: at(10 + ran)}
	}
	gang := func(a Attempt) Attempt { a.Gang = &Gang{}; return a }
	moved := Attempt{State: JobPreempted, Started: at(1), Ended: at(2)}
	unstarted := Attempt{State: JobFailed, Ended: at(3)}
	for name, c := range map[string]struct {
		retry Retry
		ran   []Attempt
		again bool
		why   string
	}{
		"nothing asked for":     {Retry{}, []Attempt{failed(1, 5)}, false, ""},
		"first":                 {Retry{Times: 2}, []Attempt{failed(1, 5)}, true, "retry 1 of 2"},
		"last":                  {Retry{Times: 2}, []Attempt{failed(1, 5), failed(3, 5)}, true, "retry 2 of 2"},
		"one too many":          {Retry{Times: 2}, []Attempt{failed(1, 5), failed(3, 5), failed(1, 5)}, false, "no retry is left of 2"},
		"room made is no try":   {Retry{Times: 1}, []Attempt{moved, moved, failed(1, 5)}, true, "retry 1 of 1"},
		"not that end":          {Retry{Times: 2, On: "75"}, []Attempt{failed(1, 5)}, false, ""},
		"other ends do not add": {Retry{Times: 1, On: "75"}, []Attempt{{State: JobNodeFail}, failed(75, 5)}, true, "retry 1 of 1"},
		"several nodes, early":  {Retry{Times: 2}, []Attempt{gang(failed(1, 3))}, false, "not tried again: on 8 nodes a failure within a minute of the start is final"},
		"several nodes, late":   {Retry{Times: 2}, []Attempt{gang(failed(1, 60))}, true, "retry 1 of 2"},
		"several, one is lost":  {Retry{Times: 2}, []Attempt{gang(Attempt{State: JobNodeFail, Started: at(1), Ended: at(2)})}, true, "retry 1 of 2"},
		"several, none started": {Retry{Times: 2}, []Attempt{gang(unstarted)}, true, "retry 1 of 2"},
	} {
		j := &Job{Spec: &Spec{Retry: c.retry, Nodes: 8}, Attempts: c.ran}
		if again, why := j.Retries(); again != c.again || why != c.why {
			t.Errorf("%s: %v, %q; want %v, %q", name, again, why, c.again, c.why)
		}
	}
}

// TestProbes: an elastic job that failed early next runs with its fewest, until a run
// outlives that time, and one that failed early with its fewest nodes is over.
func TestProbes(t *testing.T) {
	t.Parallel()
	at := func(seconds int) Time { return Time(time.Duration(seconds) * time.Second / time.Microsecond) }
	ended := func(state JobState, n, ran int) Attempt {
		a := Attempt{State: state, Exit: &Exit{Code: 1}, Started: at(10), Ended: at(10 + ran)}
		a.Berth.GPUs = make([]GPUShare, n)
		if n > 10 { // tens are nodes
			a.Gang = &Gang{Rest: make([]Berth, n/10-1), Parts: make([]Part, n/10)}
		}
		return a
	}
	nodes := func(least int) Spec {
		return Spec{GPUs: 1, Nodes: least, NodeRange: NodeRange{Min: least, Max: 4}, Retry: Retry{Times: 3}}
	}
	gpus := Spec{GPUs: 1, GPURange: GPURange{Min: 1, Max: 8}, Retry: Retry{Times: 3}}
	hook, due := gpus, nodes(1)
	hook.Checkpoint, due.Deadline = Checkpoint{Signal: "USR1", Grace: time.Minute}, 1
	lost := Attempt{State: JobNodeFail, Started: at(1), Ended: at(2)}
	for name, c := range map[string]struct {
		spec   Spec
		ran    []Attempt
		probes bool
		again  bool
		why    string
	}{
		"four nodes":              {nodes(1), []Attempt{ended(JobFailed, 40, 59)}, true, true, "retry 1 of 3, with the fewest nodes, 1: on 4 it failed within a minute of its start"},
		"late":                    {nodes(1), []Attempt{ended(JobFailed, 40, 60)}, false, true, "retry 1 of 3"},
		"one node, again":         {nodes(1), []Attempt{ended(JobFailed, 40, 5), ended(JobFailed, 10, 5)}, true, true, "retry 2 of 3"},
		"as few as there can be":  {nodes(2), []Attempt{ended(JobFailed, 40, 5), ended(JobFailed, 20, 5)}, true, false, "not tried again: on 2 nodes a failure within a minute of the start is final"},
		"the probe outlived it":   {nodes(1), []Attempt{ended(JobFailed, 40, 5), ended(JobPreempted, 10, 600), ended(JobNodeFail, 40, 5)}, false, true, "retry 2 of 3"},
		"the probe was lost":      {nodes(1), []Attempt{ended(JobFailed, 40, 5), lost}, true, true, "retry 2 of 3"},
		"eight GPUs":              {hook, []Attempt{ended(JobFailed, 8, 5)}, true, true, "retry 1 of 3, with the fewest GPUs, 1: with 8 it failed within a minute of its start"},
		"it could not get more":   {gpus, []Attempt{ended(JobFailed, 8, 5)}, false, true, "retry 1 of 3"},
		"the deadline needs more": {due, []Attempt{ended(JobFailed, 40, 5)}, false, false, "not tried again: on 1 nodes a failure within a minute of the start is final"},
		"none is left":            {nodes(1), []Attempt{ended(JobFailed, 40, 60), ended(JobFailed, 40, 60), ended(JobFailed, 40, 60), ended(JobFailed, 40, 5)}, true, false, "no retry is left of 3"},
	} {
		j := &Job{Spec: &c.spec, Attempts: c.ran}
		if again, why := j.Retries(); again != c.again || why != c.why || j.Probes() != c.probes {
			t.Errorf("%s: %v, %q, probes %v; want %v, %q", name, again, why, j.Probes(), c.again, c.why)
		}
		if again, why := RetriesUnprobed(j); strings.Contains(why, "fewest") || again && c.ran[len(c.ran)-1].Gang != nil && c.probes {
			t.Errorf("%s: before probes %v, %q", name, again, why)
		}
	}
}

func TestRetryCheck(t *testing.T) {
	t.Parallel()
	for _, good := range []Retry{{}, {Times: 1}, {Times: MaxRetries, On: "75,NODE_FAIL"}} {
		if err := good.Check(); err != nil {
			t.Errorf("%+v: %v", good, err)
		}
	}
	for _, bad := range []Retry{{Times: -1}, {Times: MaxRetries + 1}, {On: "75"}, {Times: 1, On: "x"}} {
		if bad.Check() == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
	if got := (Retry{Times: 3}).String(); got != "up to 3 times after FAILED,NODE_FAIL" {
		t.Error(got)
	}
}

// FuzzParseRetryOn: what is taken names ends that are failures, and nothing else.
func FuzzParseRetryOn(f *testing.F) {
	for _, s := range []string{"", "75", "64-78,NODE_FAIL", "1-255", "timeout", "255-255,", "0-3"} {
		f.Add(s, int32(75))
	}
	f.Fuzz(func(t *testing.T, text string, code int32) {
		on, err := ParseRetryOn(text)
		if err != nil {
			return
		}
		for _, s := range []JobState{JobCompleted, JobCancelled, JobPreempted, JobRunning} {
			if on.Names(&Attempt{State: s, Exit: &Exit{Code: code}}) {
				t.Errorf("%q names %s", text, s)
			}
		}
		if code%256 == 0 && len(on.states) == 0 && on.Names(&Attempt{State: JobFailed, Exit: &Exit{Code: code}}) {
			t.Errorf("%q names exit code 0", text)
		}
	})
}
