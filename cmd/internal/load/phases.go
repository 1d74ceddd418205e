package load

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster/wait"
)

// churn submits jobs that end, and waits for the last.
func (t *trial) churn(ctx context.Context) error {
	if t.o.jobs == 0 {
		return nil
	}
	c, _, err := t.leader(ctx)
	if err != nil {
		return err
	}
	before, err := usageOf(c.PID)
	if err != nil {
		return err
	}
	m, err := metrics(ctx, c.Metrics)
	if err != nil {
		return err
	}
	ended := t.fleet.ended.Load()
	s := &stream{socket: c.Socket, spec: spec(t.o.run), jobs: t.o.jobs, clients: t.o.clients, batch: t.o.batch, rate: t.o.rate, sent: t.sent}
	submitted := make(chan error, 1)
	go func() { submitted <- s.run(ctx) }()
	err = await(ctx, "jobs that end", &t.fleet.ended, ended+int64(t.o.jobs), func(done int64) { t.say("%d of %d jobs have ended", done-ended, t.o.jobs) })
	if err := errors.Join(<-submitted, err); err != nil {
		return err
	}
	took := time.Since(s.began)
	after, err := usageOf(c.PID)
	if err != nil {
		return err
	}
	m2, err := metrics(ctx, c.Metrics)
	if err != nil {
		return err
	}
	t.say("%d jobs have ended", t.o.jobs)
	n := float64(t.o.jobs)
	const bytes, index = "berth_raft_appended_bytes_total", "berth_raft_last_index"
	t.put("submits_per_s", fmt.Sprintf("submits by %d clients, %d jobs a request", t.o.clients, t.o.batch), n/s.took.Seconds(), "jobs/s")
	t.put("submit_p50_ms", "median of such a request", part(s.calls, 0.5), "ms")
	t.put("submit_p99_ms", "99th percentile", part(s.calls, 0.99), "ms")
	t.put("ends_per_s", "jobs from the first submit to the last end", n/took.Seconds(), "jobs/s")
	waits := t.waits()
	t.put("start_p50_ms", "median from submit to start", part(waits, 0.5), "ms")
	t.put("start_p99_ms", "99th percentile", part(waits, 0.99), "ms")
	t.put("job_cpu_ms", "processor time of the leader for each job", 1000*(after.cpu-before.cpu).Seconds()/n, "ms")
	t.put("job_log_bytes", "log for each job", (m2[bytes]-m[bytes])/n, "bytes")
	t.put("job_log_entries", "log entries for each job", (m2[index]-m[index])/n, "")
	t.put("job_written_bytes", "bytes that the leader wrote to its disk for each job", float64(after.writtenB-before.writtenB)/n, "bytes")
	return nil
}

// waits returns how long each job took from its submit to its node, sorted.
func (t *trial) waits() (out []time.Duration) {
	for id := range t.sent {
		if sent, began := t.sent[id].Load(), t.fleet.began[id].Load(); sent > 0 && began > 0 {
			out = append(out, time.Duration(began-sent)*time.Microsecond)
		}
	}
	slices.Sort(out)
	return out
}

// fill starts jobs that run until the end, and submits those that wait.
func (t *trial) fill(ctx context.Context) error {
	if t.o.running == 0 {
		return nil
	}
	c, _, err := t.leader(ctx)
	if err != nil {
		return err
	}
	all := t.o.nodes * t.o.gpus
	each := (t.o.running + all - 1) / all // jobs on the fullest GPUs
	full := t.o.running - (each-1)*all    // GPUs with so many
	began, started := time.Now(), t.fleet.started.Load()
	// Those that need the most come first: others would spread over GPUs meanwhile.
	for _, group := range []struct{ jobs, each int }{{(all - full) * (each - 1), each - 1}, {full * each, each}} {
		if group.jobs == 0 {
			continue
		}
		s := spec(untilTold)
		s.GpuMemMib = int64(cardMiB-1024) / int64(group.each)
		if group.each == 1 {
			s.Exclusive, s.GpuMemMib, s.GpuUtilMilli = true, 0, 0
		}
		started += int64(group.jobs)
		fill := &stream{socket: c.Socket, spec: s, jobs: group.jobs, clients: 1, batch: maxBatch}
		if err := fill.run(ctx); err != nil {
			return err
		}
		if err := await(ctx, "jobs that start", &t.fleet.started, started, func(done int64) { t.say("%d jobs are missing", started-done) }); err != nil {
			return err
		}
	}
	t.say("%d jobs run", t.o.running)
	t.put("starts_per_s", fmt.Sprintf("starts of %d jobs, submitted 1,000 at once", t.o.running), float64(t.o.running)/time.Since(began).Seconds(), "jobs/s")
	if t.o.waiting > 0 {
		s := spec(untilTold)
		s.Gpus, s.Exclusive, s.GpuMemMib, s.GpuUtilMilli = uint32(t.o.gpus), true, 0, 0
		if err := (&stream{socket: c.Socket, spec: s, jobs: t.o.waiting, clients: 1, batch: maxBatch}).run(ctx); err != nil {
			return err
		}
		t.say("%d jobs wait", t.o.waiting)
	}
	return t.resting(ctx, "full", fmt.Sprintf("with %d jobs that run and %d that wait", t.o.running, t.o.waiting))
}

// watched measures what watchers cost.
func (t *trial) watched(ctx context.Context) error {
	if t.o.watchers == 0 {
		return nil
	}
	c, _, err := t.leader(ctx)
	if err != nil {
		return err
	}
	s := spec(untilTold)
	s.Hold, s.Gpus, s.GpuMemMib, s.GpuUtilMilli = true, 0, 0, 0
	s.Begin = farAway()
	held := &stream{socket: c.Socket, spec: s, jobs: changing, clients: 1, batch: changing}
	if err := held.run(ctx); err != nil {
		return err
	}
	var before, after usage
	measured := func(into *usage) (err error) {
		*into, err = usageOf(c.PID)
		return err
	}
	during := func() error {
		if err := measured(&before); err != nil {
			return err
		}
		if !wait.Sleep(ctx, t.o.rest) {
			return ctx.Err()
		}
		return measured(&after)
	}
	if _, _, err := watch(ctx, c.Socket, 0, held.ids, t.o.changes, during); err != nil {
		return err
	}
	alone := after.cores(before)
	made, seen, err := watch(ctx, c.Socket, t.o.watchers, held.ids, t.o.changes, during)
	if err != nil {
		return err
	}
	t.say("%d watchers saw %d changes", t.o.watchers, made)
	secs := after.at.Sub(before.at).Seconds()
	t.put("watch_cores", fmt.Sprintf("%d watchers with %.0f changes a second", t.o.watchers, float64(made)/secs), max(0, after.cores(before)-alone), "cores").most(1)
	t.put("watch_jobs_per_s", "jobs that they were sent, in all", float64(seen)/secs, "per s")
	t.put("changes_cores", "nodes and changes alone", alone, "cores")
	return nil
}

// snapshot waits until a snapshot holds what there is, and reads how long snapshots took.
func (t *trial) snapshot(ctx context.Context) error {
	limit := time.Now().Add(3 * time.Minute)
	for {
		c, last, err := t.leader(ctx)
		if err != nil {
			return err
		}
		m, err := metrics(ctx, c.Metrics)
		if err != nil {
			return err
		}
		missing := float64(last) - m["berth_raft_snapshot_index"]
		if missing > 64 && time.Now().Before(limit) {
			if !wait.Sleep(ctx, time.Second) {
				return ctx.Err()
			}
			continue
		}
		t.say("a snapshot holds all but %.0f log entries", missing)
		t.put("snapshot_s", "longest snapshot", m[longest("snapshot")], "s").most(5)
		t.put("capture_ms", "longest pause of the state machine for one", 1000*m[longest("capture")], "ms").most(20)
		t.put("apply_ms", "longest batch of log entries in the state machine", 1000*m[longest("apply")], "ms").most(20)
		t.put("append_ms", "longest write of log entries", 1000*m[longest("append")], "ms")
		t.put("trim_ms", "longest removal of log entries", 1000*m[longest("trim")], "ms")
		t.put("raft_db_mib", "the log's file", m["berth_raft_log_bytes"]/(1<<20), "MiB")
		return nil
	}
}

// totals adds what the leader used at most.
func (t *trial) totals(ctx context.Context) error {
	u, err := t.used(ctx)
	if err != nil {
		return err
	}
	t.put("rss_top_gib", "most memory of the leader since it started", float64(u.topB)/(1<<30), "GiB").most(4)
	return nil
}
