package servicecmd_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/cli/jobspec"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// updated is what berth service update submits, or what it says.
func updated(t *testing.T, args string) (*apiv1.JobSpec, string) {
	t.Helper()
	w, f := clitest.NewWorld(t), clitest.NewFake()
	f.Jobs = running()
	w.Serve("/a", f)
	if code := w.Run(append([]string{"service", "update"}, strings.Fields(args)...)...); code != 0 {
		return nil, w.Errs.String()
	}
	return f.Requests[0].GetJobs()[0], w.Out.String()
}

// TestUpdate: what is said alone is sent, with its names.
func TestUpdate(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"chat":                                       "",
		"chat --gpu-mem 4G":                          "gpu_mem_mib",
		"chat --drain 0 --health /h":                 "service.drain service.health",
		"chat --replicas 2-6":                        "service.replicas service.most",
		"chat --scale-on in_flight=4":                "service.scale_on service.scale_target",
		"chat --nodelist n1":                         "where.nodes",
		"chat --data words":                          "data",
		"chat --data words!":                         "data where.features",
		"chat --gpus 0.5 --model resnet50 --batch 2": "features gpus gpu_util_milli",
		"chat -- python serve.py --x":                "command script",
		"chat --mem 1G -- serve":                     "mem_mib all_mem command script",
	} {
		spec, said := updated(t, args)
		if spec == nil {
			t.Errorf("%s: %s", args, said)
			continue
		}
		got, fields := slices.Clone(spec.GetChange().GetFields()), strings.Fields(want)
		slices.Sort(got)
		slices.Sort(fields)
		if got = slices.Compact(got); !slices.Equal(got, fields) || spec.GetService().GetName() != "chat" {
			t.Errorf("%s changes %q of %s, want %q", args, got, spec.GetService().GetName(), want)
		}
	}
	spec, _ := updated(t, "chat --gpu-mem 4G --drain 90s -- a b")
	if spec.GetGpuMemMib() != 4096 || spec.GetService().GetDrain().AsDuration() != 90*time.Second || len(spec.GetCommand()) != 2 || spec.GetChange() == nil {
		t.Errorf("sent %v", spec)
	}
	if spec, said := updated(t, "chat --anew --gpu-mem 4G -- a b"); spec == nil || spec.GetChange() != nil || spec.GetArray() != "0-8%1" {
		t.Errorf("in full: %v %s", spec, said)
	}
	for args, want := range map[string]string{
		"-- x":                 "the name of the service is missing before --",
		"chat --":              "the command after -- is missing",
		"chat --retry 2":       "--retry: cannot be changed by an update",
		"chat --gpu-mem lots":  "--gpu-mem:",
		"chat --replicas many": "--replicas \"many\": want",
		"none --gpu-mem 4G":    "no service \"none\" is running",
		"chat --anew":          "the command is missing",
	} {
		if spec, said := updated(t, args); spec != nil || !strings.Contains(said, want) {
			t.Errorf("%s: %v\n%s want %s", args, spec, said, want)
		}
	}
}

// TestEveryOptionIsSorted: what an option changes is known, or that a service has none.
func TestEveryOptionIsSorted(t *testing.T) {
	t.Parallel()
	no := []string{"deadline", "nodes", "tasks-per-node", "array", "batch-scaling", "in-place", "retry", "retry-on", "metric", "defer", "slowdown"}
	for _, f := range jobspec.Fields() {
		_, said := updated(t, "chat --"+f.Name+"=")
		if refused := strings.Contains(said, "cannot be changed by an update"); refused != slices.Contains(no, f.Name) {
			t.Errorf("--%s: %s", f.Name, said)
		}
	}
}
