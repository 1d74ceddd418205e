package space

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berth-scheduler/berth/cluster"
)

const gib = 1 << 30

// disk is a file system that a test fills.
type disk struct {
	mu   sync.Mutex
	free Free
	err  error
}

func (d *disk) set(free, size uint64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.free, d.err = Free{free, size}, err
}

func (d *disk) statfs(string) (Free, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.free, d.err
}

// TestLevels: the smaller of the part and the number counts, a level is left
// above a quarter more than it begins at, and what cannot be told changes nothing.
func TestLevels(t *testing.T) {
	t.Parallel()
	failed := errors.New("no answer")
	synctest.Test(t, func(t *testing.T) {
		d := &disk{}
		d.set(500*gib, 1000*gib, nil)
		var logged strings.Builder
		reg := prometheus.NewRegistry()
		w := New(Config{Statfs: d.statfs}, "/data", slog.New(slog.NewTextHandler(&logged, nil)), reg)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		for _, step := range []struct {
			free, size uint64
			err        error
			want       Level
		}{
			{gib, 1000 * gib, nil, Ample},
			{gib - 1, 1000 * gib, nil, Low},
			{gib + gib/4 - 1, 1000 * gib, nil, Low},
			{256 << 20, 1000 * gib, nil, Low},
			{256<<20 - 1, 1000 * gib, nil, Full},
			{500 * gib, 1000 * gib, failed, Full},
			{320<<20 - 1, 1000 * gib, nil, Full},
			{320 << 20, 1000 * gib, nil, Low},
			{0, 1000 * gib, nil, Full},
			{gib + gib/4, 1000 * gib, nil, Ample},
			{6 << 20, 100 << 20, nil, Ample}, // of a small one, the part counts
			{5<<20 - 1, 100 << 20, nil, Low},
			{1<<20 - 1, 100 << 20, nil, Full},
			{0, 0, nil, Full}, // it does not say
			{7 << 20, 100 << 20, nil, Ample},
		} {
			d.set(step.free, step.size, step.err)
			time.Sleep(time.Second)
			synctest.Wait()
			if got := w.State().Level; got != step.want {
				t.Errorf("%d of %d free: level %d, want %d", step.free, step.size, got, step.want)
			}
			grow, propose := w.Grow(), w.Propose()
			if (grow != nil) != (step.want >= Low) || (propose != nil) != (step.want == Full) {
				t.Errorf("level %d: refused with %v and %v", step.want, grow, propose)
			}
			if e, ok := errors.AsType[*cluster.Error](grow); ok && (!strings.Contains(e.Msg, "/data") || !strings.Contains(e.Msg, "make room")) {
				t.Errorf("does not say where and what to do: %v", e)
			}
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		got := map[string]float64{}
		families, err := reg.Gather()
		for _, f := range families {
			got[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
		}
		want := map[string]float64{"berth_disk_free_bytes": 7 << 20, "berth_disk_size_bytes": 100 << 20, "berth_disk_level": 0}
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("metrics are %v, want %v; %v", got, want, err)
		}
		for what, times := range map[string]int{"the disk fills up": 5, "a little room again": 1, "has room again; everything": 2, "cannot be told": 2} {
			if n := strings.Count(logged.String(), what); n != times {
				t.Errorf("logged %q %d times, want %d", what, n, times)
			}
		}
	})
}

// TestKernel: the kernel is asked for the file system of the directory.
func TestKernel(t *testing.T) {
	t.Parallel()
	s := New(Config{}, t.TempDir(), slog.New(slog.DiscardHandler), prometheus.NewRegistry()).State()
	if s.Free.Size == 0 || s.Free.Bytes > s.Free.Size {
		t.Errorf("%+v", s)
	}
	if _, err := statfs("/no/such/path"); err == nil {
		t.Error("a path that is not there has a file system")
	}
}

// TestAwait: a start waits while next to nothing is free, and not for more than that.
func TestAwait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{}
		d.set(16<<20-1, 1000*gib, nil)
		var logged strings.Builder
		log := slog.New(slog.NewTextHandler(&logged, nil))
		ended := make(chan error, 1)
		go func() { ended <- Await(t.Context(), Config{Statfs: d.statfs}, "/data", log) }()
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(ended) > 0 || strings.Count(logged.String(), "the disk is full") != 1 {
			t.Fatalf("it did not wait, or did not say so once: %s", &logged)
		}
		d.set(16<<20, 1000*gib, nil)
		began := time.Now()
		if err := <-ended; err != nil || time.Since(began) > time.Second {
			t.Errorf("with room: %v after %v", err, time.Since(began))
		}
		d.set(0, 0, errors.New("no such directory"))
		if err := Await(t.Context(), Config{Statfs: d.statfs}, "/data", log); err != nil {
			t.Errorf("where it cannot be told: %v", err)
		}
		d.set(0, 1000*gib, nil)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := Await(ctx, Config{Statfs: d.statfs}, "/data", log); !errors.Is(err, context.Canceled) {
			t.Errorf("when it is stopped: %v", err)
		}
	})
}
