package slurmcmd_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// counted is a cluster whose coordinators count what they do.
type counted struct{ *clitest.Fake }

func (f counted) GetStatus(ctx context.Context, r *apiv1.GetStatusRequest) (*apiv1.GetStatusResponse, error) {
	st, err := f.Fake.GetStatus(ctx, r)
	if err != nil {
		return nil, err
	}
	st.Now = timestamppb.New(clitest.Now)
	st.Figures = &apiv1.Figures{Since: clitest.Ago(2 * time.Minute), InFlight: 1, Passes: []*apiv1.PassFigures{
		{Kind: "arrival", Count: 6, LastUs: 40, MaxUs: 90, TotalUs: 300, LastDepth: 1, TotalDepth: 12, Started: 5}, {Kind: "full", Count: 2, LastUs: 200, MaxUs: 400, TotalUs: 600, LastDepth: 3, TotalDepth: 8, Started: 4},
		{Kind: "release", Started: 2},
	}, Calls: []*apiv1.CallFigures{{Method: "ListJobs", Count: 3, TotalUs: 1500}, {Method: "GetStatus", Count: 1, TotalUs: 20}}}
	return st, nil
}

// TestSdiag: the lines that exporters read by their words, with the coordinators' own
// figures in them.
func TestSdiag(t *testing.T) {
	t.Parallel()
	w, f := clitest.NewWorld(t), counted{clitest.NewFake()}
	w.ServeWith("/a", f.Fake, f)
	if code := w.Run("sdiag"); code != 0 {
		t.Fatalf("exit code %d: %s", code, w.Errs.String())
	}
	want := `*******************************************************
sdiag output at Sat Mar 14 15:09:26 2026 (1773500966)
Data since      Sat Mar 14 15:07:26 2026 (1773500846)
*******************************************************
Server thread count:  1
Agent queue size:     0
Agent count:          0
Agent thread count:   0
DBD Agent queue size: 0

Jobs started:   11

Job states ts:  Sat Mar 14 15:09:26 2026 (1773500966)
Jobs pending:   1
Jobs running:   3

Main schedule statistics (microseconds):
	Last cycle:   40
	Max cycle:    90
	Total cycles: 6
	Mean cycle:   50
	Mean depth cycle:  2
	Cycles per minute: 3
	Last queue length: 1

Backfilling stats
	Total backfilled jobs (since last slurm start): 4
	Total backfilled jobs (since last stats cycle start): 4
	Total backfilled heterogeneous job components: 0
	Last cycle:   200
	Max cycle:    400
	Total cycles: 2
	Mean cycle:   300
	Depth Mean:  4
	Cycles per minute: 1
	Last queue length: 3

Remote Procedure Call statistics by message type
	LIST_JOBS                               (    0) count:3      ave_time:500    total_time:1500
	GET_STATUS                              (    0) count:1      ave_time:20     total_time:20
`
	if d := cmp.Diff(want, w.Out.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	old := clitest.NewWorld(t)
	old.Serve("/a", clitest.NewFake())
	if code := old.Run("sdiag"); code != 1 || !strings.Contains(old.Errs.String(), "upgrade them") {
		t.Errorf("of coordinators that do not count: exit code %d: %s", code, old.Errs.String())
	}
}
