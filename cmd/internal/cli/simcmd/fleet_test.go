package simcmd_test

import (
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/cmd/internal/cli/simcmd"
)

// FuzzFleet reads descriptions of clusters: what is taken must be a cluster.
func FuzzFleet(f *testing.F) {
	f.Add("nodes:\n- {count: 2, gpus: 4, gpu_type: T4, gpu_mem_mib: 15360, idle_w: 10, max_w: 70}\n")
	f.Add("name: x\nmax_shares: 3\nreserved_mib: 512\npool: true\nnodes: [{count: 1, gpus: 1}]\n")
	f.Add("nodes: [{count: -1, gpus: 1}]")
	f.Add("nodes: &a [*a]")
	f.Add("a: &a [x,x]\nb: &b [*a,*a]\n")
	f.Fuzz(func(t *testing.T, text string) {
		fleet, err := simcmd.DecodeFleet(strings.NewReader(text))
		if err != nil {
			return
		}
		if err := fleet.Check(); err != nil {
			t.Fatalf("was taken, and is none: %v", err)
		}
		if fleet.GPUs() < 0 || fleet.Holds() > fleet.GPUs() {
			t.Fatalf("%d GPUs, %d for one job", fleet.GPUs(), fleet.Holds())
		}
	})
}
