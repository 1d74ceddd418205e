package profile

import (
	"context"
	"errors"
	"time"

	"github.com/berth-scheduler/berth/agent/proc"
	"github.com/berth-scheduler/berth/cluster"
)

const (
	// An attempt's memory is sampled often while it is young, when it allocates most of what it
	// will ever need, and every second later; its processes' I/O, which costs one file each,
	// even less often.
	youngEvery = 250 * time.Millisecond
	youngFor   = 10 * time.Second
	memEvery   = time.Second
	ioEvery    = 5 * time.Second
	// enoughSamples of memory make a peak. For anything shorter, the kernel's own high-water
	// mark, which includes the page cache, is the better figure.
	enoughSamples = 4
)

// hostTrack is what is kept of an attempt's use of the node.
type hostTrack struct {
	Peak    int64   `json:"peak"` // bytes
	Samples int     `json:"samples"`
	IO      proc.IO `json:"io"`
}

// Run samples the attempts until ctx ends, and saves the results every few seconds and at its
// end.
func (r *Recorder) Run(ctx context.Context) error {
	saved := time.Now()
	for {
		now := time.Now()
		next := r.sampleHosts(now)
		if now.Sub(saved) >= saveEvery {
			saved = now
			r.save()
		}
		timer := time.NewTimer(max(time.Until(next), youngEvery/5))
		select {
		case <-ctx.Done():
			timer.Stop()
			r.save()
			return ctx.Err()
		case <-r.wake:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// due is one attempt to be sampled. Its track's meter belongs to the goroutine of Run.
type due struct {
	t       *track
	count   bool // its I/O, too
	bytes   int64
	io      proc.IO
	memErr  error
	counted bool
}

// sampleHosts samples the attempts that are due, and returns when the next will be.
func (r *Recorder) sampleHosts(now time.Time) (next time.Time) {
	next = now.Add(saveEvery)
	var list []*due
	r.mu.Lock()
	for _, t := range r.tracks {
		if !t.live {
			continue
		}
		every := memEvery
		if now.Sub(t.Started) < youngFor {
			every = youngEvery
		}
		if now.Sub(t.sampled) >= every {
			list = append(list, &due{t: t, count: now.Sub(t.counted) >= ioEvery})
			t.sampled = now
		}
		if at := t.sampled.Add(every); at.Before(next) {
			next = at
		}
	}
	r.mu.Unlock()
	for _, d := range list { // files are read without the lock
		d.read(r)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range list {
		if t := d.t; t.live {
			t.take(now, d)
		}
	}
	return next
}

// read asks the kernel.
func (d *due) read(r *Recorder) {
	r.mu.Lock()
	t, meter, pid, group := d.t, d.t.meter, d.t.pid, d.t.group
	r.mu.Unlock()
	if meter == nil && group != nil {
		m, err := group.Meter()
		if err == nil {
			r.mu.Lock()
			if t.live {
				t.meter, meter = m, m
			} else {
				_ = m.Close() // it was only read
			}
			r.mu.Unlock()
		}
	}
	var pids []int
	if meter == nil || d.count {
		if meter != nil {
			pids, _ = group.Processes() // an error changes nothing
		} else if pid > 0 {
			pids = proc.Tree(pid)
		}
	}
	if meter != nil {
		d.bytes, d.memErr = meter.Resident()
	} else {
		d.bytes, d.memErr = resident(pids)
	}
	if !d.count {
		return
	}
	for _, pid := range pids {
		if io, err := proc.ReadIO(pid); err == nil {
			d.io, d.counted = d.io.Add(io), true
		}
	}
}

// resident sums over processes, for nodes without control groups.
func resident(pids []int) (int64, error) {
	sum := int64(0)
	for _, pid := range pids {
		n, err := proc.Resident(pid)
		if err == nil {
			sum += n
		}
	}
	if sum == 0 {
		return 0, errors.New("none of its processes has memory")
	}
	return sum, nil
}

// take records one sample. The caller holds the recorder's lock.
func (t *track) take(now time.Time, d *due) {
	if d.memErr == nil {
		t.Host.Peak = max(t.Host.Peak, d.bytes)
		t.Host.Samples++
	}
	if d.count {
		t.counted = now
		// Processes that ended without being waited for are missing from a sum.
		t.Host.IO = t.Host.IO.Max(d.io)
	}
	if len(t.Cards) == 0 {
		t.look(now, hostGap)
	}
}

// Looks returns how often the memory of an attempt was sampled, if the last time was after t.
func (r *Recorder) Looks(id cluster.AttemptID, t time.Time) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.tracks[id]; a != nil && a.sampled.After(t) {
		return a.Host.Samples
	}
	return 0
}

// Pid sets the first process of an attempt if it was unknown when the attempt began.
func (r *Recorder) Pid(id cluster.AttemptID, pid int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.tracks[id]; t != nil && pid > 0 {
		t.pid = pid
	}
}
