package statuscmd_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/golden"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

func TestGolden(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args   []string
		change func(*clitest.Fake)
	}{
		"bare":        {nil, nil},
		"status":      {[]string{"status"}, nil},
		"status-json": {[]string{"status", "-o", "json"}, nil},
		"status-none": {[]string{"status"}, func(f *clitest.Fake) { f.Jobs, f.Nodes = nil, nil }},
		"status-held": {[]string{"status"}, func(f *clitest.Fake) { f.Jobs[3].User = "ann"; f.Jobs = append(f.Jobs[:2], f.Jobs[3]) }},
		"status-many": {[]string{"status"}, many},
		"status-warning": {[]string{"status"}, func(f *clitest.Fake) {
			f.Nodes = nil
			f.Unwell = []string{"no job waits for cheaper power: energy_signal cannot be read, see the log"}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, f := clitest.NewWorld(t), clitest.NewFake()
			if c.change != nil {
				c.change(f)
			}
			w.Serve("/a", f)
			golden.Check(t, name, w.Transcript(c.args...))
			if strings.Contains(name, "json") {
				return
			}
			lines := strings.Split(strings.TrimSuffix(w.Out.String(), "\n"), "\n")
			for _, line := range lines {
				if n := console.TextWidth(line); n > 80 {
					t.Errorf("a line of %d columns: %q", n, line)
				}
			}
			if len(lines) > 15 {
				t.Errorf("%d lines", len(lines))
			}
		})
	}
}

// many is more of everything than there is room for, with long names.
func many(f *clitest.Fake) {
	for i := range 9 {
		j := clitest.SampleJobs()[0]
		j.Id, j.Name = uint64(100+i), strings.Repeat("long", 20)
		if i == 8 { // a task is called by its number
			j.ArrayJobId, j.ArrayTaskId = 90, new(uint32(7))
		}
		f.Jobs = append(f.Jobs, j)
		f.Nodes = append(f.Nodes, &apiv1.Node{
			Id: fmt.Sprintf("x%d", i), State: "ready", Drain: true, DrainReason: strings.Repeat("because ", 30), Jobs: []uint64{j.Id},
			Gpus: []*apiv1.GPU{
				{Uuid: fmt.Sprint("GPU-x", i), Type: fmt.Sprint("A-TYPE-OF-A-VERY-LONG-NAME-", i), State: "failing", StateReason: "Xid 79", SellableMib: 1 << 20, LedgerUsedMib: 1 << 19, Shares: 3, MeasuredUtilMilli: 1000},
				{Uuid: fmt.Sprint("GPU-y", i), Type: fmt.Sprint("A-TYPE-OF-A-VERY-LONG-NAME-", i), MeasuredUtilMilli: -1, Drain: true},
			},
		})
	}
}

func TestBareWithoutACluster(t *testing.T) {
	t.Parallel()
	w := clitest.NewWorld(t)
	w.Vars["BERTH_SOCKET"] = "/a,/b"
	golden.Check(t, "bare-nowhere", w.Transcript())
}
