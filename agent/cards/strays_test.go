package cards

import (
	"log/slog"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/agent/gpu"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// strayScene shows a card at moments, second by second.
type strayScene struct {
	w    *strayWatch
	now  time.Time
	told int
}

func newStrayScene() *strayScene {
	s := &strayScene{now: time.Unix(1_000_000, 0)}
	s.w = newStrayWatch(slog.New(slog.DiscardHandler), func() { s.told++ })
	return s
}

// lasts shows the same processes for some seconds.
func (s *strayScene) lasts(seconds int, procs ...gpu.Process) {
	for range seconds {
		s.w.observe(s.now, []gpu.Usage{{UUID: "a", Processes: procs}})
		s.now = s.now.Add(time.Second)
	}
}

func stray(pid int, mib int64) gpu.Process {
	return gpu.Process{PID: pid, Stray: true, User: "anna", Command: "python3", MemMiB: mib}
}

func TestStrays(t *testing.T) {
	t.Parallel()
	job := gpu.Process{PID: 1, Attempt: "j1-a1", MemMiB: 4000}
	for _, tc := range []struct {
		name string
		play func(*strayScene)
		mib  int64
		pids []int
		told int
	}{
		{"none", func(s *strayScene) { s.lasts(20, job) }, 0, nil, 0},
		{"one that stays", func(s *strayScene) { s.lasts(7, job, stray(2, 1000)) }, 1024, []int{2}, 1},
		{"a short look", func(s *strayScene) { s.lasts(4, stray(2, 1000)); s.lasts(10) }, 0, nil, 0},
		{"many short looks", func(s *strayScene) {
			for pid := range 20 {
				s.lasts(2, stray(100+pid, 500))
			}
		}, 0, nil, 0},
		{"two, the larger first", func(s *strayScene) { s.lasts(7, stray(2, 100), stray(3, 1000)) }, 1152, []int{3, 2}, 1},
		{"of unknown memory", func(s *strayScene) { s.lasts(7, stray(2, gpu.Unknown)) }, 0, []int{2}, 1},
		{"it grows", func(s *strayScene) { s.lasts(7, stray(2, 100)); s.lasts(1, stray(2, 5000)) }, 5120, []int{2}, 2},
		{"small moves are no news", func(s *strayScene) { s.lasts(7, stray(2, 100)); s.lasts(5, stray(2, 120)); s.lasts(30, stray(2, 90)) }, 128, []int{2}, 1},
		{"it shrinks for a moment", func(s *strayScene) { s.lasts(7, stray(2, 5000)); s.lasts(8, stray(2, 100)); s.lasts(1, stray(2, 5000)) }, 5120, []int{2}, 1},
		{"it shrinks", func(s *strayScene) { s.lasts(7, stray(2, 5000)); s.lasts(12, stray(2, 100)) }, 128, []int{2}, 2},
		{"it ends", func(s *strayScene) { s.lasts(7, stray(2, 5000)); s.lasts(12) }, 0, nil, 3},
		{"its memory waits a moment", func(s *strayScene) { s.lasts(7, stray(2, 5000)); s.lasts(5) }, 5120, nil, 2},
		{"a card that was not read", func(s *strayScene) {
			s.lasts(7, stray(2, 5000))
			for range 30 {
				s.now = s.now.Add(time.Second)
				s.w.observe(s.now, []gpu.Usage{{UUID: "b"}})
			}
		}, 5120, []int{2}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newStrayScene()
			tc.play(s)
			procs, mib := s.w.of("a")
			same := len(procs) == len(tc.pids)
			for i := 0; same && i < len(procs); i++ {
				same = procs[i].PID == tc.pids[i]
			}
			if mib != tc.mib || !same || s.told != tc.told {
				t.Errorf("%d MiB, %+v, told %d times; want %d, %v, %d", mib, procs, s.told, tc.mib, tc.pids, tc.told)
			}
		})
	}
}

func TestDetailOfACard(t *testing.T) {
	t.Parallel()
	s := newStrayScene()
	var many []gpu.Process
	for pid := range 2 * straysTold {
		many = append(many, stray(10+pid, 128))
	}
	s.lasts(7, many...)
	g := &nodev1.GPU{}
	s.w.detailCard(g, &gpu.Card{
		UUID: "a", Name: "NVIDIA H100", Driver: "580.1", CUDA: "13.0", ComputeMajor: 9, PowerLimitW: 700, NVLinkGroup: 2, MIG: gpu.ModeOn,
		Instances: []gpu.Instance{{UUID: "MIG-1", Profile: "1g.10gb", MemMiB: 9856, SMs: 16}},
	})
	d := g.Detail
	if g.StrayMib != 2*straysTold*128 || len(d.Strays) != straysTold {
		t.Errorf("%d MiB of %d named strays", g.StrayMib, len(d.Strays))
	}
	if got := migText(&gpu.Card{UUID: "MIG-1"}); got != "instance" {
		t.Errorf("MIG of an instance: %q", got)
	}
	if d.Compute != "9.0" || d.Mig != "on" || d.Persistence != "unknown" || d.NvlinkGroup != 2 || d.PowerLimitW != 700 || d.Cuda != "13.0" ||
		len(d.Instances) != 1 || d.Instances[0].Profile != "1g.10gb" {
		t.Errorf("detail: %v", d)
	}
}
