package agent

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/agent/attempt"
	"github.com/berth-scheduler/berth/agent/cards"
	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/gpu/health"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// leaving is how far an attempt that ended is with giving its cards back.
//
//	ended ─▶ (COMPLETING, with its exit) ─▶ back for Quiet ─▶ its end is reported
//	                    └─ not back Within ─▶ cards quarantined ─▶ its end is reported
//	                                              └─ back ─▶ cards open again
//
// The state machine frees shares with the report of the end. So that report
// waits until either the memory is back, or the leader knows that the card is
// closed: hello goes before reports, and both are committed in order.
type leaving struct {
	since    time.Time // zero before it began
	quiet    time.Time // since when nothing of it is on its cards; zero while something is
	told     bool      // that it is completing
	deleted  bool      // what the runtime kept of it
	judged   bool
	back     bool // nothing is left to do
	reported bool // how it ended, with its cards quarantined
	wait     time.Duration
	release  func() // of the sampler's fast rate
}

const (
	returnFirst = 5 * time.Millisecond // the first look again, doubling
	returnEvery = 250 * time.Millisecond
	// tellAfter is how long cards may take to be free without a word of it.
	tellAfter = 100 * time.Millisecond
)

// who speaks for one attempt of the state of its cards.
func (t *task) who() string { return "return of " + t.id.String() }

// quarantine keeps new attempts from the attempt's cards, or opens them again
// with "".
func (t *task) quarantine(why string) {
	as, _ := t.wants()
	for _, s := range as.GetGpus() {
		state := cards.Quarantined
		if why == "" {
			state = cards.OK
		}
		t.agent.cards.States.Set(s.Uuid, t.who(), state, why)
	}
}

// leave runs the epilog of an attempt that ended, and gives its cards back. left
// is false when it is to look again.
func (t *task) leave(ctx context.Context) (left bool, err error) {
	if err := t.epilog(ctx); err != nil {
		return false, err
	}
	return t.returnCards(ctx)
}

// returnCards waits until the cards of an attempt that ended are free of it.
// back is false when it is to look again.
func (t *task) returnCards(ctx context.Context) (back bool, err error) {
	as, released := t.wants()
	if t.agent.cfg.GPUs == nil || len(as.GetGpus()) == 0 || t.end.Started == nil || t.leaving.back {
		return true, nil
	}
	l := &t.leaving
	if l.since.IsZero() {
		l.since, l.wait, l.release = time.Now(), returnFirst, t.agent.cards.Sampler.Hold()
	}
	held := t.deleteFirst(ctx)
	if held == "" {
		held = t.stillOn(ctx, as)
	}
	now := time.Now()
	if held == "" && l.quiet.IsZero() {
		l.quiet = now
	} else if held != "" {
		l.quiet = time.Time{}
	}
	if held == "" && now.Sub(l.quiet) >= t.settle() {
		return true, t.returned(ctx, as)
	}
	within := t.agent.cfg.Health.Within
	switch late := now.Sub(l.since) >= within || now.Sub(t.end.Ended.AsTime()) >= 2*within; {
	case held != "" && (late || released):
		t.overdue(held)
	case !l.told && !released && !l.reported && now.Sub(l.since) >= tellAfter:
		l.told = true
		t.completing(cluster.ReasonGPUReturning, held)
	}
	t.await(ctx, l.wait)
	l.wait = min(2*l.wait, returnEvery)
	return false, nil
}

// settle is how long nothing of the attempt may be on its cards. Who failed
// waits for what the driver has to say about it, unless it has said enough.
func (t *task) settle() time.Duration {
	h := &t.agent.cfg.Health
	if t.end.State == nodev1.AttemptState_ATTEMPT_STATE_FAILED && (h.Kmsg != "" || t.watchesDriver()) && t.culprit(t.end) == nil {
		return max(h.Quiet, h.Blame)
	}
	return h.Quiet
}

func (t *task) watchesDriver() bool {
	_, ok := t.agent.cfg.GPUs.(gpu.EventSource)
	return ok
}

// returned opens the cards again, and settles whose fault the end was.
func (t *task) returned(ctx context.Context, as *nodev1.Assignment) error {
	l := &t.leaving
	l.release()
	if l.reported {
		t.log.Info("GPU memory of an attempt that ended is back", "dur", time.Since(l.since).Round(time.Millisecond))
	}
	t.quarantine("")
	t.agent.cards.States.SetProblem(t.who(), "")
	t.agent.checks.After(ctx, t.id, as)
	err := t.judge()
	l.back = err == nil
	return err
}

// judge changes the end by what befell the cards, before it is reported.
func (t *task) judge() error {
	if t.leaving.judged {
		return nil
	}
	t.leaving.judged = true
	r := proto.CloneOf(t.end)
	if !t.blame(r) {
		return nil
	}
	if err := t.agent.journal.End(r); err != nil {
		return err
	}
	t.end = r
	return nil
}

// overdue quarantines the cards, and lets the end be known.
func (t *task) overdue(held string) {
	l := &t.leaving
	if err := t.judge(); err != nil {
		t.log.Error("cannot write the journal", "err", err)
		return
	}
	t.quarantine(fmt.Sprintf("%s ended and is not off it: %s", t.id, held))
	if l.reported {
		return
	}
	l.reported = true
	t.log.Warn("GPU memory of an attempt that ended is not back; its GPUs are quarantined until it is", "held", held)
	if _, released := t.wants(); !released {
		t.agent.out.Put(t.end)
	}
}

// completing reports that the process ended, or cannot be ended, and that the
// cards are not free.
func (t *task) completing(code cluster.ReasonCode, why string) {
	r := &nodev1.Report{
		Job: uint64(t.id.Job), Attempt: t.id.No, Token: uint64(t.token),
		State: nodev1.AttemptState_ATTEMPT_STATE_COMPLETING, Reason: string(code), Detail: why,
	}
	if t.end != nil {
		r.Exit, r.Started = t.end.Exit, t.end.Started
	}
	t.agent.out.Put(r)
}

// deleteFirst takes down what the runtime keeps, with every process that is
// left: they may be what holds the memory. It returns what is in the way.
func (t *task) deleteFirst(ctx context.Context) string {
	if t.leaving.deleted {
		return ""
	}
	if t.rt == nil {
		as, _ := t.wants()
		t.rt = t.agent.runtimeFor(as)
	}
	if t.rt == nil {
		return ""
	}
	cctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := t.rt.Delete(cctx, t.id); err != nil {
		return "its processes are not gone: " + err.Error()
	}
	t.leaving.deleted = true
	return ""
}

// stillOn says what of an attempt is still on its cards, "" for nothing.
func (t *task) stillOn(ctx context.Context, as *nodev1.Assignment) string {
	usage, ok := t.agent.cards.UsageAfter(ctx, t.leaving.since)
	if !ok {
		return "the driver does not tell what is on its GPUs"
	}
	var words []string
	for i, s := range as.Gpus {
		base := int64(0)
		if b := t.life.Progress.GetGpuBaselineMib(); i < len(b) {
			base = b[i]
		}
		if w := leftOn(usage, s.Uuid, t.id.String(), base, t.agent.cfg.Health.SlackMiB); w != "" {
			words = append(words, w)
		}
	}
	return strings.Join(words, "; ")
}

// leftOn says what of an attempt is left on a card by what the card shows, ""
// for nothing: processes of the attempt, or memory above what the card held
// before that no process accounts for. What others hold, strays too, is theirs.
func leftOn(usage []gpu.Usage, uuid, attempt string, baseMiB, slackMiB int64) string {
	for i := range usage {
		u := &usage[i]
		if u.UUID != uuid {
			continue
		}
		for _, p := range u.Processes {
			if p.PID != 0 && p.Attempt == attempt {
				return fmt.Sprintf("GPU %s: process %d of it holds %d MiB", uuid, p.PID, max(0, p.MemMiB))
			}
		}
		free, known := unexplained(u)
		if over := free - max(0, baseMiB); known && baseMiB >= 0 && over > slackMiB {
			return fmt.Sprintf("GPU %s: %d MiB are not back", uuid, over)
		}
		return ""
	}
	return "GPU " + uuid + " cannot be read"
}

// unexplained is the memory of a card that no process accounts for; known is
// false where a process does not tell what it holds.
func unexplained(u *gpu.Usage) (mib int64, known bool) {
	mib = u.UsedMiB
	for _, p := range u.Processes {
		if p.PID == 0 {
			continue
		}
		if p.MemMiB < 0 {
			return 0, false
		}
		mib -= p.MemMiB
	}
	return max(0, mib), true
}

// cardCause is why the attempt must end for its cards, if it must.
func (t *task) cardCause() attempt.Cause {
	if b := t.hit(t.life.Started, time.Time{}); b != nil && b.Xid.Action == health.End {
		return attempt.CardGone
	}
	if t.wasFaulted() != nil {
		return attempt.CardFault
	}
	return attempt.NoCause
}
