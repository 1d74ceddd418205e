package nvmlproc

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/berth-scheduler/berth/agent/gpu"
)

// loop owns the child. Everything except stuck belongs to its goroutine.
type loop struct {
	p         *Provider
	child     *child
	backoff   time.Duration
	notBefore time.Time
	// missed counts, by kind, the questions since the last one of that kind was answered: a
	// good answer to one kind says nothing about another.
	missed  [kindEvent]int
	checked time.Time    // when owed was last called
	looked  time.Time    // when an inventory was last read
	stuck   atomic.Int32 // children that were killed and still exist
}

// lookEvery is how often the inventory is read when nothing requests it.
const lookEvery = time.Minute

// settled is how long a child must live for the next one to be started immediately.
const settled = 30 * time.Second

// run answers requests until Close.
func (l *loop) run() {
	// A child dies with the thread that started it. Never unlocked, the thread
	// ends with this goroutine.
	runtime.LockOSThread()
	p := l.p
	defer close(p.done)
	defer p.events.close()
	defer func() {
		if l.child != nil {
			l.end()
		}
	}()
	for {
		select {
		case <-p.quit:
			return
		case r := <-p.requests:
			// The caller may have stopped waiting.
			if r.ctx.Err() != nil {
				continue
			}
			a, err := l.answer(r.kind, r.body)
			r.reply <- result{a, err}
			if err == nil {
				l.owed()
				l.refresh()
			}
		}
	}
}

// cutDeadlines is how many times as long as another question a cut may take: the driver makes
// each instance in about a second.
const cutDeadlines = 10

// answer asks the child within the deadline and evaluates the answer.
func (l *loop) answer(k kind, body []byte) (answer, error) {
	deadline := l.p.cfg.Deadline
	if k == kindCut {
		deadline *= cutDeadlines
	}
	late, stop := l.p.cfg.late(deadline)
	defer stop()
	a, err := l.exchange(k, body, late)
	if errors.Is(err, errClosed) {
		return a, err
	}
	if err != nil {
		l.miss(k, err)
		return a, fmt.Errorf("%w: %w", gpu.ErrSilent, err)
	}
	if k == kindTune || k == kindCut {
		return a, nil
	}
	if n := l.missed[k]; n > 0 {
		l.p.log.Info("the driver answers again", "call", k.String(), "missed", n)
		l.missed[k] = 0
	}
	if l.silent() {
		return a, nil // it still owes the answer to another question
	}
	switch k {
	case kindInventory:
		l.looked = time.Now()
		l.p.cards.look(a.Cards, a.Faults)
	case kindUsage:
		uuids := make([]string, 0, len(a.Usage))
		for i := range a.Usage {
			uuids = append(uuids, a.Usage[i].UUID)
		}
		l.p.cards.glance(uuids, a.Faults)
	}
	return a, nil
}

// silent reports whether too many questions in a row went unanswered.
func (l *loop) silent() bool {
	n := 0
	for _, m := range l.missed {
		n += m
	}
	return n >= l.p.cfg.Misses
}

// miss counts an unanswered question. What changes a setting is not repeated: the other kinds
// show whether the driver answers.
func (l *loop) miss(k kind, err error) {
	if k == kindTune || k == kindCut {
		l.p.log.Warn("the driver did not answer", "call", k.String(), "err", err)
		return
	}
	l.missed[k]++
	if n := l.missed[k]; n <= l.p.cfg.Misses {
		l.p.log.Warn("the driver did not answer", "call", k.String(), "missed", n, "err", err)
	}
	if l.silent() {
		l.p.cards.silent("the driver does not answer: " + err.Error())
	}
}

// owed repeats, after a good answer, questions that went unanswered and are rarely asked:
// otherwise the GPUs would stay unknown until they are.
func (l *loop) owed() {
	if time.Since(l.checked) < l.p.cfg.LastBackoff {
		return
	}
	for k, n := range l.missed {
		if n > 0 {
			l.checked = time.Now()
			// The state of the GPUs records any error.
			_, _ = l.answer(kind(k), nil)
		}
	}
}

// refresh reads the inventory from time to time: a GPU may be repartitioned, or its limits
// changed, while nothing requests it.
func (l *loop) refresh() {
	if time.Since(l.looked) > lookEvery {
		l.looked = time.Now()
		_, _ = l.answer(kindInventory, nil)
	}
}

// exchange sends one question and waits for its answer.
func (l *loop) exchange(k kind, body []byte, late <-chan time.Time) (answer, error) {
	if err := l.running(late); err != nil {
		return answer{}, err
	}
	id, err := l.child.ask(k, body)
	if err != nil {
		return answer{}, l.giveUp(fmt.Errorf("%s: %w", k, err))
	}
	for {
		select {
		case f, ok := <-l.child.frames:
			switch {
			case !ok:
				return answer{}, l.giveUp(fmt.Errorf("%s: %w", k, errDied))
			case f.kind != k || f.id != id:
				return answer{}, l.giveUp(fmt.Errorf("%s: %w: answer %d to question %d", k, errFrame, f.id, id))
			}
			a, err := decodeAnswer(f)
			if err != nil {
				return answer{}, l.giveUp(err)
			}
			return a, nil
		case <-late:
			return answer{}, l.giveUp(fmt.Errorf("%s: no answer in %s", k, l.p.cfg.Deadline))
		case <-l.p.quit:
			return answer{}, errClosed
		}
	}
}

var errDied = errors.New("the driver's process ended")

// running makes sure that there is a child that has sent its hello.
func (l *loop) running(late <-chan time.Time) error {
	if c := l.child; c != nil && c.ready {
		select {
		case _, ok := <-c.frames: // between questions it sends nothing
			err := errDied
			if ok {
				err = errFrame
			}
			l.p.log.Warn("the driver's process is started again", "err", l.giveUp(err))
		default:
			return nil
		}
	}
	if l.child == nil {
		if err := l.start(late); err != nil {
			return err
		}
	}
	select {
	case f, ok := <-l.child.frames:
		if !ok {
			return l.giveUp(fmt.Errorf("load the driver: %w", errDied))
		}
		return l.greeted(f)
	case <-late:
		err := fmt.Errorf("the driver is not loaded %s after its process was started", time.Since(l.child.born).Round(time.Millisecond))
		if time.Since(l.child.born) < l.p.cfg.StartTimeout {
			return err // it may still come
		}
		return l.giveUp(err)
	case <-l.p.quit:
		return errClosed
	}
}

// greeted handles the first frame of a child.
func (l *loop) greeted(f frame) error {
	if f.kind != kindHello {
		return l.giveUp(fmt.Errorf("%w: begins with %s", errFrame, f.kind))
	}
	h, err := decodeHello(f)
	if err != nil {
		return l.giveUp(err)
	}
	if h.Error != "" {
		err := error(&remoteError{text: h.Error})
		if h.NoDriver {
			err = &noDriver{remoteError{text: h.Error}}
		}
		return l.giveUp(err)
	}
	l.child.ready = true
	l.p.log.Info("driver loaded", "driver", h.Driver, "cuda", h.CUDA, "pid", l.child.cmd.Process.Pid,
		"dur", time.Since(l.child.born).Round(time.Millisecond).String())
	return nil
}

// noDriver is the child's report that there is no driver.
type noDriver struct{ remoteError }

func (e *noDriver) Is(target error) bool { return target == gpu.ErrNoDriver }

// start starts a child, but not before the backoff is over.
func (l *loop) start(late <-chan time.Time) error {
	if n := l.stuck.Load(); n >= maxStuck {
		return fmt.Errorf("%d processes hang in the driver and cannot be ended; the node needs a reboot", n)
	}
	if d := time.Until(l.notBefore); d > 0 {
		wait := time.NewTimer(d)
		defer wait.Stop()
		select {
		case <-wait.C:
		case <-late:
			return fmt.Errorf("the driver's process is started again in %s", time.Until(l.notBefore).Round(time.Millisecond))
		case <-l.p.quit:
			return errClosed
		}
	}
	c, err := startChild(l.p.cfg.Command, l.p.cfg.Env, l.p.events.put, l.p.log)
	if err != nil {
		l.later()
		return err
	}
	l.child = c
	return nil
}

// giveUp ends the child because of err, which it returns.
func (l *loop) giveUp(err error) error {
	if time.Since(l.child.born) > settled {
		l.backoff = l.p.cfg.FirstBackoff
	}
	l.end()
	l.later()
	return err
}

// later delays the next start.
func (l *loop) later() {
	l.notBefore = time.Now().Add(l.backoff)
	l.backoff = min(2*l.backoff, l.p.cfg.LastBackoff)
}

// end kills the child and forgets it; a goroutine that waits for it keeps the count.
func (l *loop) end() {
	l.stuck.Add(1)
	l.child.end(func(pr *os.Process) error { return l.p.cfg.kill(pr) }, func() { l.stuck.Add(-1) })
	l.child = nil
}
