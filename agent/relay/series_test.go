package relay_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/series"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// TestSeries are told to the leader of any card, for as long as a week, by an agent that
// was restarted since.
func TestSeries(t *testing.T) {
	r := newRig(t)
	as := r.job("echo hi; sleep 1000")
	now := time.Now()
	r.restart(func() {
		book := series.Open(filepath.Join(r.cfg.Dir, "series"), now, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- book.Run(ctx) }()
		for i := range 10 { // few enough that the disk is not late
			book.Observe(now.Add(time.Duration(i-9)*time.Hour), []gpu.Usage{{UUID: "a", UsedMiB: int64(i), UtilMilli: gpu.Unknown, PowerW: 9}, {UUID: "b", UsedMiB: 50}})
		}
		cancel()
		<-done
	})
	asks := func(gpus []string, from, to time.Time) (frames []*apiv1.GPUSeries, refused *nodev1.Refusal, ended bool) {
		t.Helper()
		g := r.visit(as, &apiv1.AttachOpen{Job: 1, What: &apiv1.AttachOpen_Series{Series: &apiv1.AttachSeries{Gpus: gpus, From: from.Unix(), To: to.Unix()}}},
			func(v *nodev1.Visit) { v.Uid, v.Of.Job = 1234, 77 })
		defer g.Leave()
		for {
			m, err := g.Recv()
			if err == io.EOF {
				return frames, refused, ended
			} else if err != nil {
				t.Fatal(err)
			}
			if n := proto.Size(m); n > 64<<10 {
				t.Errorf("a frame of %d bytes", n)
			}
			frames, ended = append(frames, m.GetFrame().GetSeries().GetGpus()...), ended || m.GetFrame().GetEnded() != nil
			if m.GetRefused() != nil {
				refused = m.GetRefused()
			}
		}
	}
	frames, refused, ended := asks([]string{"a", "never", "b"}, now.Add(-5*time.Hour-time.Minute), now)
	if len(frames) != 2 || refused != nil || !ended || frames[0].Gpu != "a" || len(frames[0].At) < 5 || frames[0].UsedMib[len(frames[0].At)-1] != 9 || frames[0].UtilMilli[0] != -1 || frames[1].UsedMib[0] != 50 {
		t.Errorf("%v, %v, %v", frames, refused, ended)
	}
	if frames, _, ended := asks([]string{"a"}, now.Add(-100*365*24*time.Hour), now.Add(100*365*24*time.Hour)); len(frames) != 1 || len(frames[0].At) != 10 || !ended {
		t.Errorf("of two centuries: %v", frames)
	}
	var many []string
	for i := range 17 {
		many = append(many, fmt.Sprint(i))
	}
	if frames, refused, _ := asks(many, now, now); len(frames) != 0 || refused.GetReason() != "INVALID" {
		t.Errorf("of 17 cards: %v, %v", frames, refused)
	}
}
