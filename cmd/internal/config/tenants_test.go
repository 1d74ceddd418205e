package config_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/config"
	"github.com/berth-scheduler/berth/scheduler/cells"
)

func TestTenants(t *testing.T) {
	t.Parallel()
	const head = "id: c1\ncluster: {id: hpc}\nlisten: {advertise: \"c1:7070\"}\n"
	want := []config.Tenant{
		{Name: "vision", Users: []string{"alice", "1001"}, Cells: []string{"A100-SXM4-80GB:8=2", "A100-SXM4-80GB:1=4"}},
		{Name: "guests", Users: []string{"bob"}},
	}
	inFile := head + "scheduling:\n  tenants:\n  - {name: vision, users: [alice, \"1001\"], cells: [\"A100-SXM4-80GB:8=2\", \"A100-SXM4-80GB:1=4\"]}\n  - {name: guests, users: [bob]}\n"
	for _, c := range []struct {
		name, file string
		env        []string
	}{
		{"in a file", inFile, nil},
		{"in the environment", head, []string{"BERTH_SCHEDULING_TENANTS=vision=alice+1001/A100-SXM4-80GB:8=2+A100-SXM4-80GB:1=4, guests=bob"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "c.yaml")
			if err := os.WriteFile(path, []byte(c.file), 0o600); err != nil {
				t.Fatal(err)
			}
			l, err := config.LoadCoordinator(config.Sources{Path: path, Env: c.env})
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, l.Config.Scheduling.Tenants); d != "" {
				t.Errorf("tenants (-want +got):\n%s", d)
			}
			ten, err := l.Config.Scheduling.Tenancy()
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff([]cells.Cell{{GPUType: "A100-SXM4-80GB", GPUs: 8, Count: 2}, {GPUType: "A100-SXM4-80GB", GPUs: 1, Count: 4}}, ten.Tenants[0].Cells); d != "" {
				t.Errorf("cells (-want +got):\n%s", d)
			}
			for _, o := range []struct {
				who  cluster.Owner
				want string
			}{{cluster.Owner{UID: 7, Name: "alice"}, "vision"}, {cluster.Owner{UID: 1001, Name: "carol"}, "vision"}, {cluster.Owner{UID: 8, Name: "bob"}, "guests"}, {cluster.Owner{UID: 9, Name: "eve"}, ""}} {
				if got := ten.Of(o.who); got != o.want {
					t.Errorf("%+v is of %q, want %q", o.who, got, o.want)
				}
			}
		})
	}
}
