// Package space watches how much room the file system of a coordinator's directory
// has left, so that the coordinator stops accepting work before the disk is full: a
// failed write to the log ends the process.
package space

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
)

// startPart is the part of the threshold Full that a start needs: some entries fit,
// and a cluster short of coordinators gets one that is nearly full.
const startPart = 16

// Level says how much room there is.
type Level uint32

// The levels, from most room to least.
const (
	Ample Level = iota
	Low         // what users send and the log keeps is refused
	Full        // nothing is written to the log
)

// Threshold is a part of the file system in percent or a number of bytes,
// whichever is less.
type Threshold struct {
	Percent int
	Bytes   uint64
}

func (t Threshold) of(size uint64) uint64 { return min(size/100*uint64(max(0, t.Percent)), t.Bytes) }

// Free is room that is available to users other than root, of Size, in bytes.
type Free struct{ Bytes, Size uint64 }

// Config configures a Watch. Fields that are 0 have the values of Default.
type Config struct {
	// Low and Full are the free space below which the levels of these names begin.
	// They end above one and a quarter times as much.
	Low, Full Threshold
	// Every is the time between two checks.
	Every time.Duration
	// Statfs queries the file system of a path; nil asks the kernel.
	Statfs func(path string) (Free, error)
}

// Default returns the default thresholds.
func Default() Config {
	return Config{Low: Threshold{5, 1 << 30}, Full: Threshold{1, 256 << 20}, Every: time.Second, Statfs: statfs}
}

func (c Config) withDefaults() Config {
	d := Default()
	c.Low, c.Full, c.Every = cmp.Or(c.Low, d.Low), cmp.Or(c.Full, d.Full), cmp.Or(c.Every, d.Every)
	if c.Statfs == nil {
		c.Statfs = d.Statfs
	}
	return c
}

func statfs(path string) (Free, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return Free{}, fmt.Errorf("statfs %s: %w", path, err)
	}
	return Free{Bytes: st.Bavail * uint64(st.Bsize), Size: st.Blocks * uint64(st.Bsize)}, nil
}

// State is the result of a check. A Size of 0 means that it is unknown.
type State struct {
	Level Level
	Free  Free
}

// Watch knows how much room a directory has. It is safe for concurrent use, except
// for Run, which is called once.
type Watch struct {
	dir string
	cfg Config
	log *slog.Logger

	mu      sync.Mutex
	state   State
	failing bool
}

// New checks dir once and registers the metrics with reg.
func New(cfg Config, dir string, log *slog.Logger, reg prometheus.Registerer) *Watch {
	w := &Watch{dir: dir, cfg: cfg.withDefaults(), log: log}
	w.look()
	gauge := func(name, help string, value func(State) float64) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return value(w.State()) }))
	}
	gauge("berth_disk_free_bytes", "Free space of the file system of data.dir, for users other than root.", func(s State) float64 { return float64(s.Free.Bytes) })
	gauge("berth_disk_size_bytes", "Size of the file system of data.dir; 0 if unknown.", func(s State) float64 { return float64(s.Free.Size) })
	gauge("berth_disk_level", "0 if there is enough free space, 1 if there is too little for new jobs and changes, 2 if too little to write to the log.", func(s State) float64 { return float64(s.Level) })
	return w
}

// Run checks repeatedly until ctx ends.
func (w *Watch) Run(ctx context.Context) error {
	tick := time.NewTicker(w.cfg.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			w.look()
		}
	}
}

// State returns the result of the last check.
func (w *Watch) State() State {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

// look queries the free space. If that fails the state stays as it was: the
// watchdog ends a coordinator whose disk fails.
func (w *Watch) look() {
	free, err := w.cfg.Statfs(w.dir)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil || free.Size == 0 {
		if !w.failing {
			w.log.Warn("free space of data.dir cannot be told", "dir", w.dir, "err", err)
		}
		w.failing = true
		return
	}
	w.failing = false
	was := w.state.Level
	w.state = State{Level: w.level(was, free), Free: free}
	switch now := w.state.Level; {
	case now > was:
		w.log.Error("the disk fills up: "+w.state.Problem(w.dir), "dir", w.dir, "free_bytes", free.Bytes, "size_bytes", free.Size)
	case now == Ample && was != Ample:
		w.log.Info("the disk has room again; everything is taken", "dir", w.dir, "free_bytes", free.Bytes, "size_bytes", free.Size)
	case now < was:
		w.log.Warn("the disk has a little room again: "+w.state.Problem(w.dir), "dir", w.dir, "free_bytes", free.Bytes, "size_bytes", free.Size)
	}
}

// level returns the level for free space after a level: leaving a level takes a
// quarter more than staying out of it.
func (w *Watch) level(was Level, free Free) Level {
	below := func(t Threshold, l Level) bool {
		limit := t.of(free.Size)
		if was >= l {
			limit += limit / 4
		}
		return free.Bytes < limit
	}
	switch {
	case below(w.cfg.Full, Full):
		return Full
	case below(w.cfg.Low, Low):
		return Low
	}
	return Ample
}

// Problem says what is wrong and what to do, "" if there is room.
func (s State) Problem(dir string) string {
	room := fmt.Sprintf("%d MiB of %d MiB are free in %s", s.Free.Bytes>>20, s.Free.Size>>20, dir)
	const todo = "make room there, or move it to a larger disk; it goes on by itself then"
	switch s.Level {
	case Low:
		return room + ": new jobs and changes of jobs are refused (disk.low_percent, disk.low_mib); " + todo
	case Full:
		return room + ": nothing is written to the log, so nothing starts or changes (disk.full_percent, disk.full_mib); jobs that run go on; " + todo
	}
	return ""
}

// Await returns when a coordinator can start on dir: while next to nothing is free
// its first write to the log would end it again. It returns an error if ctx ends.
func Await(ctx context.Context, cfg Config, dir string, log *slog.Logger) error {
	cfg = cfg.withDefaults()
	for told := false; ; told = true {
		free, err := cfg.Statfs(dir)
		if err != nil || free.Bytes >= cfg.Full.of(free.Size)/startPart {
			return nil // if that is unknown, such as when dir is created later, the start itself will
		}
		if !told {
			log.Error("the disk is full; the coordinator starts when there is room: make some", "dir", dir, "free_bytes", free.Bytes, "size_bytes", free.Size)
		}
		if !wait.Sleep(ctx, cfg.Every) {
			return ctx.Err()
		}
	}
}

// Grow returns an error while nothing may be accepted from users that the log
// keeps. The error is a *cluster.Error.
func (w *Watch) Grow() error {
	if s := w.State(); s.Level == Low {
		return &cluster.Error{Code: cluster.CodeExhausted, Msg: "the coordinator's disk is almost full, nothing was done: " + s.Problem(w.dir)}
	}
	return w.Propose()
}

// Propose returns an error while nothing may be written to the log. The error is a
// *cluster.Error; nothing was done then, and another coordinator may take over.
func (w *Watch) Propose() error {
	if s := w.State(); s.Level == Full {
		return &cluster.Error{Code: cluster.CodeUnavailable, Msg: "the coordinator's disk is full, nothing was done: " + s.Problem(w.dir)}
	}
	return nil
}
