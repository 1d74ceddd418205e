// Package profile measures the attempts of a node while they run: what they hold and use of
// their GPUs, of memory and of storage, what their GPUs draw, and with which attempts they are
// co-located. It keeps its data across restarts of the agent, and records for how long nothing
// was measured.
package profile

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/berth-scheduler/berth/agent/cgroup"
	"github.com/berth-scheduler/berth/agent/proc"
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

const (
	// cardGap and hostGap are the longest times between two samples that are assumed to have
	// passed as the second shows.
	cardGap = 5 * time.Second
	hostGap = 10 * time.Second
)

// Recorder measures the attempts of one node. Its methods are safe for
// concurrent use.
type Recorder struct {
	path string // of the file that outlives the agent
	log  *slog.Logger
	wake chan struct{} // an attempt began

	mu     sync.Mutex
	tracks map[cluster.AttemptID]*track
	onCard map[string][]*track // live attempts, in the order they began
	cards  map[string]cardState
}

// Attempt is what a Recorder must know of a running attempt.
type Attempt struct {
	ID      cluster.AttemptID
	Started time.Time
	// Cards are the UUIDs of its GPUs.
	Cards []string
	// Group is its control group; without one, or if it does not exist, PID and its descendants
	// are measured. PID is 0 when unknown.
	Group *cgroup.Group
	PID   int
}

// Result is what was measured of an attempt from its start to its end.
type Result struct {
	// GPUMemPeakMiB is the most that it was seen to hold on one GPU, Milli its mean utilization
	// of them.
	GPUMemPeakMiB, Milli int64
	// HostMemPeak is the most anonymous and shared memory that it was seen to hold, in bytes, 0
	// if it was sampled too rarely to tell.
	HostMemPeak int64
	// Profile is everything else. The caller adds HostHighWaterMib.
	Profile *nodev1.Profile
}

// IO returns what was read from and written to storage.
func (r *Result) IO() proc.IO {
	return proc.IO{Read: r.Profile.ReadBytes, Written: r.Profile.WrittenBytes}
}

// track is what is kept of one attempt. Fields with names in JSON outlive the agent.
type track struct {
	ID      cluster.AttemptID `json:"id"`
	Started time.Time         `json:"started"`
	// Looked is when it was last sampled, SampledMs for how long it was measured, and GapMs for
	// how long it was not.
	Looked    time.Time    `json:"looked"`
	SampledMs int64        `json:"sampled_ms"`
	GapMs     int64        `json:"gap_ms"`
	Cards     []*cardTrack `json:"cards"`
	Util      histogram    `json:"util"`
	Host      hostTrack    `json:"host"`
	Beside    []*span      `json:"beside"`
	More      int          `json:"more"`

	id      string // ID as a string, as providers write it
	live    bool   // begun, by this process
	resumed bool   // no samples between what was saved and now
	ended   time.Time
	group   *cgroup.Group
	pid     int
	meter   *cgroup.Meter
	sampled time.Time // its memory
	counted time.Time // its I/O
}

// New returns a recorder that keeps its data in the file path, and resumes from there.
func New(path string, log *slog.Logger) *Recorder {
	r := &Recorder{
		path: path, log: log.With("component", "profile"), wake: make(chan struct{}, 1),
		tracks: map[cluster.AttemptID]*track{}, onCard: map[string][]*track{}, cards: map[string]cardState{},
	}
	r.load()
	return r
}

// Begin begins or resumes measuring a. Repeating it changes nothing.
func (r *Recorder) Begin(a Attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tracks[a.ID]
	if t == nil {
		t = &track{ID: a.ID, Started: a.Started, Looked: a.Started}
		for _, uuid := range a.Cards {
			t.Cards = append(t.Cards, &cardTrack{UUID: uuid, At: a.Started})
		}
		r.tracks[a.ID] = t
	}
	if t.live || !t.ended.IsZero() {
		return
	}
	t.live, t.group, t.pid, t.id = true, a.Group, a.PID, a.ID.String()
	t.sampled = a.Started // at its very start there is nothing to see
	for _, c := range t.Cards {
		r.onCard[c.UUID] = append(r.onCard[c.UUID], t)
	}
	for _, o := range r.tracks {
		r.meet(t, o)
		r.meet(o, t)
	}
	wait.Poke(r.wake)
}

// look accounts for the time since t was last sampled.
func (t *track) look(now time.Time, gap time.Duration) {
	d := now.Sub(t.Looked)
	if d <= 0 {
		return
	}
	if d > gap || t.resumed {
		t.GapMs += d.Milliseconds()
	} else {
		t.SampledMs += d.Milliseconds()
	}
	t.Looked, t.resumed = now, false
}

// End returns what was measured of an ended attempt, nil when it is unknown. It may be called
// again until Forget.
func (r *Recorder) End(id cluster.AttemptID, at time.Time) *Result {
	r.mu.Lock()
	t := r.tracks[id]
	if t == nil {
		r.mu.Unlock()
		return nil
	}
	r.close(t, at)
	group := t.group
	t.group = nil
	r.mu.Unlock()
	io := storageOf(group)
	r.mu.Lock()
	defer r.mu.Unlock()
	t.Host.IO = t.Host.IO.Max(io)
	return t.result()
}

// storageOf reads a group's counters once more, while it exists. Without one it returns zero.
func storageOf(g *cgroup.Group) (io proc.IO) {
	if g != nil {
		io.Read, io.Written, _ = g.Storage()
	}
	return io
}

// close ends the measurement of t, and its spans with others.
func (r *Recorder) close(t *track, at time.Time) {
	if !t.ended.IsZero() {
		return
	}
	t.ended, t.live = at, false
	for _, c := range t.Cards {
		on := slices.DeleteFunc(r.onCard[c.UUID], func(o *track) bool { return o == t })
		if r.onCard[c.UUID] = on; len(on) == 0 {
			delete(r.onCard, c.UUID)
		}
	}
	if t.meter != nil {
		_ = t.meter.Close() // it was only read
		t.meter = nil
	}
	if tail := at.Sub(t.Looked); tail > hostGap || tail > 0 && t.resumed {
		t.GapMs += tail.Milliseconds() // for example it ended while the agent was away
	}
	r.part(t, at)
}

// Forget drops an attempt.
func (r *Recorder) Forget(id cluster.AttemptID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.tracks[id]; t != nil {
		r.close(t, time.Now())
		delete(r.tracks, id)
	}
}

func (t *track) result() *Result {
	p := &nodev1.Profile{
		SampledMs: t.SampledMs, GapMs: t.GapMs, ReadBytes: t.Host.IO.Read, WrittenBytes: t.Host.IO.Written,
	}
	res := &Result{Profile: p}
	if t.Host.Samples >= enoughSamples {
		res.HostMemPeak = t.Host.Peak
	}
	t.addCards(res)
	t.addSpans(p)
	return res
}

// ids returns the attempts in order, so that equal histories give equal files.
func (r *Recorder) ids() []cluster.AttemptID {
	return slices.SortedFunc(maps.Keys(r.tracks), func(a, b cluster.AttemptID) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.No, b.No))
	})
}
