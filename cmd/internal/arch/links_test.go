package arch

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// links says what is never linked into a program, however it came there: the users'
// command starts in milliseconds, what runs as root has what it needs and no more,
// and a job waits for what stands beside it.
var links = []struct {
	program string
	never   []string
	why     string
}{
	{"berth", []string{
		"github.com/containerd/containerd", "gonum.org/v1/plot", "github.com/hashicorp/raft", "github.com/hashicorp/memberlist",
		"github.com/prometheus", "github.com/NVIDIA/go-nvml", module + "/agent/containerdrt", module + "/coordinator", module + "/fsm", module + "/scheduler",
		module + "/model/eval", module + "/cmd/internal/daemon", module + "/cmd/internal/lab", module + "/cmd/internal/top", "charm.land",
		"google.golang.org/grpc/internal/transport", "net/http", module + "/proto/berth/api/v1/apirpc", module + "/proto/berth/node", module + "/proto/berth/log",
	}, "users wait for it at each command"},
	{"berthd", []string{
		"gonum.org/v1/plot", module + "/scheduler/sim", module + "/model/eval",
		module + "/cmd/internal/lab", module + "/cmd/internal/top", module + "/cmd/internal/dev", module + "/cmd/internal/demo", module + "/cmd/internal/simjob",
		module + "/cmd/internal/cli/simcmd", module + "/cmd/internal/cli/evalcmd", module + "/cmd/internal/cli/jobcmd", module + "/cmd/internal/cli/slurmcmd",
	}, "it runs as root"},
	{"berth-job", []string{
		"google.golang.org/grpc", "google.golang.org/protobuf", "net/http", "text/template", "github.com/spf13/cobra",
		module + "/proto", module + "/agent/relay", module + "/cmd/internal/cli",
	}, "each job waits for it"},
	{"berth-sbatch", []string{
		"google.golang.org", "net/http", "text/template", "crypto/tls", "crypto/rand", "go.yaml.in", "github.com/spf13",
		module + "/proto/berth", module + "/cmd/internal/cli/console", module + "/model", module + "/agent",
	}, "its start is most of what a submit takes"},
}

// TestLinks holds each program to what may be in it.
func TestLinks(t *testing.T) {
	for _, l := range links {
		t.Run(l.program, func(t *testing.T) {
			t.Parallel()
			out, err := exec.Command("go", "list", "-deps", module+"/cmd/"+l.program).Output()
			if err != nil {
				t.Fatalf("go list: %v", err)
			}
			for _, dep := range forbidden(strings.Fields(string(out)), l.never) {
				t.Errorf("%s links %s: %s; go list -deps shows how it came there", l.program, dep, l.why)
			}
		})
	}
}

// TestLinksCatch plants a breach.
func TestLinksCatch(t *testing.T) {
	deps := []string{"net", "net/http", "net/httptrace", module + "/fsm", module + "/fsmore"}
	if got, want := forbidden(deps, []string{"net/http", module + "/fsm"}), []string{"net/http", module + "/fsm"}; !slices.Equal(got, want) {
		t.Errorf("caught %q, want %q", got, want)
	}
}

// forbidden are those of the packages deps that lie in a folder of never.
func forbidden(deps, never []string) []string {
	var bad []string
	for _, dep := range deps {
		if slices.ContainsFunc(never, func(n string) bool { return under(dep, n) }) {
			bad = append(bad, dep)
		}
	}
	return bad
}
