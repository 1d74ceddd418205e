package simclient_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/berth-scheduler/berth/agent/gpu/sim/simclient"
)

func TestFromEnv(t *testing.T) {
	t.Parallel()
	full := []string{"BERTH_SIM_SOCKET=/old", "BERTH_GPU_UUIDS=GPU-a,GPU-b", "BERTH_SIM_ATTEMPT=j1-a1", "BERTH_SIM_SOCKET=/s"}
	got, err := simclient.FromEnv(full)
	if err != nil {
		t.Fatalf("from env: %v", err)
	}
	want := simclient.Config{Socket: "/s", Attempt: "j1-a1", Cards: []string{"GPU-a", "GPU-b"}}
	if d := cmp.Diff(want, got, cmpopts.IgnoreFields(simclient.Config{}, "Dial")); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for _, missing := range [][]string{nil, full[:2], {"BERTH_SIM_SOCKET=/s", "BERTH_SIM_ATTEMPT=j1-a1", "BERTH_GPU_UUIDS="}} {
		if _, err := simclient.FromEnv(missing); !errors.Is(err, simclient.ErrNoCards) {
			t.Errorf("FromEnv(%q): %v, want ErrNoCards", missing, err)
		}
	}
}

func TestJobValidate(t *testing.T) {
	t.Parallel()
	compute := simclient.Event{Op: simclient.EventCompute, WorkSeconds: 1, UtilMilli: 10}
	for _, tc := range []struct {
		name string
		job  simclient.Job
		want []string
	}{
		{"good", simclient.Job{GPUMemMiB: 1, UtilMilli: 1000, Seconds: 1, RampSeconds: 1}, nil},
		{"all wrong", simclient.Job{GPUMemMiB: -1, Seconds: math.NaN(), RampSeconds: math.Inf(1)}, []string{"memory -1", "utilization 0", "work NaN", "ramp +Inf"}},
		{"good replay", simclient.Job{Events: []simclient.Event{compute}, Steps: 1}, nil},
		{"no steps", simclient.Job{Events: []simclient.Event{compute}}, []string{"steps 0"}},
		{"too long", simclient.Job{Events: []simclient.Event{compute}, Steps: 1 << 40}, []string{"more than"}},
		{"bad events", simclient.Job{Steps: 1, Events: []simclient.Event{
			{Op: "dance"}, {Op: "alloc"}, {Op: "alloc", Bytes: 1, Card: 99}, {Op: "compute", UtilMilli: 1, WorkSeconds: -1}, {Op: "compute"},
		}}, []string{`event 0: unknown op "dance"`, "event 1: alloc of 0", "card 99", "event 3: work -1", "event 4: utilization 0"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			err := tc.job.Validate()
			if (err == nil) != (len(tc.want) == 0) {
				t.Fatalf("got %v, want %q", err, tc.want)
			}
			for _, w := range tc.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error does not say %q:\n%v", w, err)
				}
			}
		})
	}
}
