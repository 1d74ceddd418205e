package history

import (
	"testing"
	"time"
)

// TestReportIdle: hours of jobs that hardly used their GPUs are idle ones, those
// of others are not, and what nobody looked at is neither.
func TestReportIdle(t *testing.T) {
	t.Parallel()
	p := NewReport(ByUser)
	for _, r := range []Row{
		{User: "ann", Allocated: 10 * time.Hour, Measured: 10 * time.Hour, Used: 10 * time.Hour / 100},
		{User: "ann", Allocated: 10 * time.Hour, Measured: 8 * time.Hour, Used: 8 * time.Hour / 20},
		{User: "ann", Allocated: 10 * time.Hour},
		{User: "bob", Allocated: 5 * time.Hour, Measured: 4 * time.Hour},
		{User: "cpu"},
	} {
		p.Add(&r)
	}
	lines, total := p.Lines()
	if lines[0].Key != "ann" || lines[0].Idle != 10*time.Hour || lines[1].Idle != 4*time.Hour || lines[2].Idle != 0 || total.Idle != 14*time.Hour {
		t.Fatalf("%+v, %+v", lines, total)
	}
}
