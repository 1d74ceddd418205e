package cluster

import (
	"slices"
	"testing"
	"time"
)

func TestParseResizeMode(t *testing.T) {
	for _, c := range []struct {
		text string
		want ResizeMode
		ok   bool
	}{{"", ResizeDefault, true}, {"default", ResizeDefault, true}, {"off", ResizeOff, true}, {"conservative", ResizeConservative, true}, {"eager", ResizeEager, true}, {"Eager", ResizeDefault, false}, {"yes", ResizeDefault, false}} {
		if got, err := ParseResizeMode(c.text); got != c.want || (err == nil) != c.ok {
			t.Errorf("%q: %v %v", c.text, got, err)
		}
	}
}

// TestResizeOf: what a partition says counts for all its jobs; where it says nothing, and
// where there is none, those with a checkpoint hook are cut.
func TestResizeOf(t *testing.T) {
	hook, none := &Spec{Checkpoint: Checkpoint{Signal: "USR1", Grace: time.Minute}}, &Spec{}
	for _, c := range []struct {
		p          *Partition
		hook, none ResizeMode
	}{
		{nil, ResizeConservative, ResizeOff},
		{&Partition{}, ResizeConservative, ResizeOff},
		{&Partition{Resize: ResizeOff}, ResizeOff, ResizeOff},
		{&Partition{Resize: ResizeConservative}, ResizeConservative, ResizeConservative},
		{&Partition{Resize: ResizeEager}, ResizeEager, ResizeEager},
	} {
		if a, b := ResizeOf(c.p, hook), ResizeOf(c.p, none); a != c.hook || b != c.none {
			t.Errorf("%+v: %s with a hook and %s without, want %s and %s", c.p, a, b, c.hook, c.none)
		}
	}
}

// TestResizeWait: the longer of a fixed time and a part of what was predicted.
func TestResizeWait(t *testing.T) {
	for _, c := range []struct {
		mode      ResizeMode
		predicted time.Duration
		want      time.Duration
	}{
		{ResizeEager, 0, 20 * time.Second}, {ResizeEager, time.Hour, 72 * time.Second},
		{ResizeConservative, time.Minute, 5 * time.Minute}, {ResizeConservative, 10 * time.Hour, time.Hour},
	} {
		if got := c.mode.Rule().Wait(c.predicted); got != c.want {
			t.Errorf("%s of %s: %s, want %s", c.mode, c.predicted, got, c.want)
		}
	}
}

// TestResizedShares works the rule by hand: eager leaves a tenth and 256 MiB.
func TestResizedShares(t *testing.T) {
	rule := ResizeEager.Rule()
	part := func(mem, milli int64) []GPUShare { return []GPUShare{{"g", Share{MemMiB: mem, Milli: milli}}} }
	whole := []GPUShare{{"g", Share{MemMiB: 80000, Milli: WholeGPU, Exclusive: true}}}
	for _, c := range []struct {
		name        string
		have, was   []GPUShare
		peak, milli int64
		want        []GPUShare
	}{
		{"cut", part(10000, 300), nil, 4000, 900, part(4656, 300)},
		{"a cut of less than a twentieth is not worth it", part(10000, 300), nil, 8500, 300, nil},
		{"a cut of a twentieth is", part(10000, 300), nil, 8403, 300, part(9499, 300)},
		{"more than the share was used", part(10000, 300), nil, 12000, 300, nil},
		{"a whole GPU of a job that nothing was known of", whole, nil, 2000, 160, part(2456, 250)},
		{"and never more compute than there is", whole, nil, 2000, 990, part(2456, WholeGPU)},
		{"cut, it stays below", part(4656, 300), part(10000, 300), 4200, 300, nil},
		{"cut, it comes near", part(4656, 300), part(10000, 300), 4300, 300, part(4986, 300)},
		{"cut, it passes what was left", part(4656, 300), part(10000, 300), 7000, 300, part(7956, 300)},
		{"never above what was granted", part(4656, 300), part(10000, 300), 9900, 300, part(10000, 300)},
		{"and then it has that", part(10000, 300), part(10000, 300), 11000, 300, nil},
	} {
		have := slices.Clone(c.have)
		got := rule.Shares(have, c.was, []int64{80000}, c.peak, c.milli)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		if !slices.Equal(have, c.have) {
			t.Errorf("%s: it changes what it reads", c.name)
		}
	}
}

func TestMayResize(t *testing.T) {
	runs := func(change func(j *Job, a *Attempt)) *Job {
		j := &Job{State: JobRunning, Spec: &Spec{GPUs: 1}, Attempts: []Attempt{{No: 1, State: JobOutOfMemory, Usage: Usage{GPUOOM: true}}, {No: 2, State: JobRunning}}}
		j.Last().Berth.GPUs = []GPUShare{{"g", Share{MemMiB: 10, Milli: 10}}}
		change(j, j.Last())
		return j
	}
	for _, c := range []struct {
		name   string
		want   bool
		change func(j *Job, a *Attempt)
	}{
		{"one that runs", true, func(*Job, *Attempt) {}},
		{"one that starts", false, func(j *Job, a *Attempt) { j.State, a.State = JobStarting, JobStarting }},
		{"no GPU", false, func(_ *Job, a *Attempt) { a.Berth.GPUs = nil }},
		{"--no-resize", false, func(j *Job, _ *Attempt) { j.Spec.NoResize = true }},
		{"shares were too little for it", false, func(j *Job, _ *Attempt) { j.NeedWhole = true }},
		{"--exclusive", false, func(j *Job, _ *Attempt) { j.Spec.Exclusive = true }},
		{"several nodes", false, func(_ *Job, a *Attempt) { a.Gang = &Gang{} }},
		{"cancelled", false, func(j *Job, _ *Attempt) { j.Cancel = &CancelRequest{} }},
		{"makes room", false, func(_ *Job, a *Attempt) { a.Preempt = &PreemptRequest{} }},
		{"cut before", false, func(_ *Job, a *Attempt) { a.Resize = &ResizeMark{} }},
		{"cut for idleness", false, func(_ *Job, a *Attempt) { a.Idle = &IdleMark{Was: a.Berth.GPUs} }},
		{"reported idle", true, func(_ *Job, a *Attempt) { a.Idle = &IdleMark{} }},
		{"cut before, and then in want of memory", false, func(j *Job, _ *Attempt) { j.Attempts[0].Resize = &ResizeMark{} }},
	} {
		if got := runs(c.change).MayResize(); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}
