package agent

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/agent/attempt"
	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// returning is what a worker keeps of its attempt's cards once it has ended.
type returning struct {
	attempt.Leaving
	deleted bool // what the runtime kept of it
	judged  bool
	back    bool   // nothing is left to do
	release func() // of the sampler's fast rate
}

// returnCards waits until the cards of an attempt that ended are free of it.
// back is false when it is to look again.
func (t *task) returnCards(ctx context.Context) (back bool, err error) {
	as, released := t.wants()
	if t.agent.cfg.GPUs == nil || len(as.GetGpus()) == 0 || t.end.Started == nil || t.leaving.back {
		return true, nil
	}
	l := &t.leaving
	if l.Since.IsZero() {
		l.release = t.agent.cards.Sampler.Hold()
	}
	l.Leaving = l.Begin(time.Now())
	held := t.held(ctx, as)
	do, next := l.Next(attempt.Cards{
		Now: time.Now(), Ended: t.end.Ended.AsTime(), Held: held, Released: released, Quiet: t.settle(), Within: t.agent.cfg.Health.Within,
	})
	l.Leaving = next
	switch do {
	case attempt.Back:
		return true, t.returned(ctx, as)
	case attempt.Overdue:
		t.overdue(as, held, released)
	case attempt.Say:
		t.completing(cluster.ReasonGPUReturning, held)
	}
	t.await(ctx, l.Wait)
	l.Leaving = l.Waited()
	return false, nil
}

// settle is how long nothing of the attempt may be on its cards. Who failed
// waits for what the driver has to say about it, unless it has said enough.
func (t *task) settle() time.Duration {
	h := &t.agent.cfg.Health
	if _, watches := t.agent.cfg.GPUs.(gpu.EventSource); t.end.State == nodev1.AttemptState_ATTEMPT_STATE_FAILED && (h.Kmsg != "" || watches) {
		if _, _, faults := t.blows(); faults.Culprit(t.end, t.life) == nil {
			return max(h.Quiet, h.Blame)
		}
	}
	return h.Quiet
}

// returned opens the cards again, and settles whose fault the end was.
func (t *task) returned(ctx context.Context, as *nodev1.Assignment) error {
	l := &t.leaving
	l.release()
	if l.Reported {
		t.log.Info("GPU memory of an attempt that ended is back", "dur", time.Since(l.Since).Round(time.Millisecond))
	}
	t.agent.cards.States.Quarantine(t.id, as.Gpus, "")
	t.agent.cards.States.Unkillable(t.id, "")
	t.agent.checks.After(ctx, t.id, as)
	err := t.judge(as)
	l.back = err == nil
	return err
}

// judge changes the end by what befell the cards, before it is reported.
func (t *task) judge(as *nodev1.Assignment) error {
	if t.leaving.judged {
		return nil
	}
	t.leaving.judged = true
	r := proto.CloneOf(t.end)
	if _, _, faults := t.blows(); !faults.Blame(r, t.life, len(as.Gpus)) {
		return nil
	}
	if err := t.agent.journal.End(r); err != nil {
		return err
	}
	t.end = r
	return nil
}

// overdue quarantines the cards, and lets the end be known.
func (t *task) overdue(as *nodev1.Assignment, held string, released bool) {
	if err := t.judge(as); err != nil {
		t.log.Error("cannot write the journal", "err", err)
		return
	}
	t.agent.cards.States.Quarantine(t.id, as.Gpus, fmt.Sprintf("%s ended and is not off it: %s", t.id, held))
	if t.leaving.Reported {
		return
	}
	t.leaving.Reported = true
	t.log.Warn("GPU memory of an attempt that ended is not back; its GPUs are quarantined until it is", "held", held)
	if !released {
		t.agent.out.Put(t.end)
	}
}

// completing reports that the process ended, or cannot be ended, and that the
// cards are not free.
func (t *task) completing(code cluster.ReasonCode, why string) {
	r := &nodev1.Report{State: nodev1.AttemptState_ATTEMPT_STATE_COMPLETING, Reason: string(code), Detail: why}
	if t.end != nil {
		r.Exit, r.Started = t.end.Exit, t.end.Started
	}
	t.say(r)
}

// held takes down what the runtime keeps, with every process that is left: they
// may be what holds the memory. It returns what is in the way, or still on the cards.
func (t *task) held(ctx context.Context, as *nodev1.Assignment) string {
	if rt := t.runtime(); rt != nil && !t.leaving.deleted {
		cctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		if err := rt.Delete(cctx, t.id); err != nil {
			return "its processes are not gone: " + err.Error()
		}
		t.leaving.deleted = true
	}
	return t.agent.cards.Left(ctx, t.leaving.Since, as, t.id, t.life.Progress.GetGpuBaselineMib(), t.agent.cfg.Health.SlackMiB)
}
