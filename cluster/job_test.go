package cluster

import (
	"errors"
	"fmt"
	"io"
	"testing"
)

func TestJobAttempts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name       string
		states     []JobState
		last, live uint32
	}{
		{"none", nil, 0, 0},
		{"running", []JobState{JobRunning}, 1, 1},
		{"over", []JobState{JobFailed}, 1, 0},
		{"again", []JobState{JobOutOfMemory, JobStarting}, 2, 2},
		{"silent", []JobState{JobNodeFail, JobUnreachable}, 2, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			j := &Job{}
			for i, s := range tt.states {
				j.Attempts = append(j.Attempts, Attempt{No: uint32(i) + 1, State: s})
			}
			no := func(a *Attempt) uint32 {
				if a == nil {
					return 0
				}
				return a.No
			}
			if no(j.Last()) != tt.last || no(j.Live()) != tt.live {
				t.Fatalf("last %d, live %d, want %d, %d", no(j.Last()), no(j.Live()), tt.last, tt.live)
			}
		})
	}
}

func TestJobClone(t *testing.T) {
	t.Parallel()
	j := &Job{ID: 1, Spec: &Spec{Name: "a"}, Attempts: []Attempt{{No: 1, State: JobRunning}}}
	c := j.Clone()
	c.State, c.Last().State = JobFailed, JobFailed
	c.Attempts = append(c.Attempts, Attempt{No: 2})
	if j.State != 0 || len(j.Attempts) != 1 || j.Last().State != JobRunning {
		t.Fatalf("the original changed: %+v", j)
	}
	if c.Spec != j.Spec {
		t.Fatal("the spec was copied; it is immutable and large")
	}
}

func TestEstimateFor(t *testing.T) {
	t.Parallel()
	es := []Estimate{{GPUType: "A100", Milli: 1}, {GPUType: "H100", Milli: 2}, {GPUType: CPUType, Milli: 3}}
	for _, tt := range []struct {
		gpuType string
		want    int64
	}{{"A100", 1}, {"H100", 2}, {CPUType, 3}, {"", 0}, {"B200", 0}, {"zzz", 0}} {
		if e, ok := EstimateFor(es, tt.gpuType); e.Milli != tt.want || ok != (tt.want != 0) {
			t.Errorf("EstimateFor(%q) = %+v, %t", tt.gpuType, e, ok)
		}
	}
	if _, ok := EstimateFor(nil, "A100"); ok {
		t.Error("there is an estimate where there are none")
	}
}

func TestReasonString(t *testing.T) {
	t.Parallel()
	if got := (Reason{Code: ReasonCPU}).String(); got != "CPU" {
		t.Errorf("%q", got)
	}
	if got := (Reason{ReasonCPU, "node a: 1 core free, needs 2"}).String(); got != "CPU: node a: 1 core free, needs 2" {
		t.Errorf("%q", got)
	}
}

func TestSellable(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ mem, reserved, head, want int64 }{
		{81920, 600, 1024, 80296}, {1024, 1024, 0, 0}, {1024, 600, 600, 0}, {0, 0, 0, 0},
	} {
		if got := Sellable(tt.mem, tt.reserved, tt.head); got != tt.want {
			t.Errorf("Sellable(%d, %d, %d) = %d, want %d", tt.mem, tt.reserved, tt.head, got, tt.want)
		}
	}
}

func TestShareable(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		g    GPU
		want bool
	}{
		{GPU{CapMode: "mps", MaxShares: 3}, true}, {GPU{CapMode: "mps", MaxShares: 1}, false}, {GPU{CapMode: "none", MaxShares: 3}, false},
		{GPU{CapMode: "watch", MaxShares: 3, Scope: ScopeSameUser}, true}, {GPU{CapMode: "watch", MaxShares: 3, Scope: ScopeNever}, false},
	} {
		if got := tt.g.Shareable(); got != tt.want {
			t.Errorf("%+v: %t", tt.g, got)
		}
	}
}

func TestError(t *testing.T) {
	t.Parallel()
	e := Errorf(CodeConflict, "job %d is over", 7)
	if e.Error() != "job 7 is over" || e.Code.String() != "conflict" || e.Unwrap() != nil {
		t.Errorf("%v, %s", e, e.Code)
	}
	wrapped := fmt.Errorf("cancel: %w", &Error{Code: CodeUnavailable, Msg: "no leader", Err: io.EOF})
	var got *Error
	if !errors.As(wrapped, &got) || got.Code != CodeUnavailable || !errors.Is(wrapped, io.EOF) || got.Error() != "no leader: EOF" {
		t.Errorf("%v", wrapped)
	}
	seen := map[string]bool{}
	for c := CodeInternal; c <= CodeOutOfRange; c++ {
		if seen[c.String()] {
			t.Errorf("%q names two codes", c)
		}
		seen[c.String()] = true
	}
	if Code(200).String() != "internal" {
		t.Error("a code that is none of ours must tell nothing")
	}
}
