package learner

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/fsm"
	"github.com/berth-scheduler/berth/model"
	"github.com/berth-scheduler/berth/model/learn"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// Config says when the leader learns from measurements. The zero value is usable.
type Config struct {
	// MinSamples is how many new samples it waits for; 0 means 32.
	MinSamples int
	// Every is the least time between two fits; 0 means 10 s.
	Every time.Duration
	// Challenge compares what can be learned from the samples, oldest first, with
	// the weights in use. It computes in the calling goroutine, for a second at
	// most; nil means learn.Challenge.
	Challenge func(samples []model.Sample, champion model.Weights) (learn.Verdict, error)
}

func (c Config) withDefaults() Config {
	c.MinSamples = cmp.Or(c.MinSamples, 32)
	c.Every = cmp.Or(c.Every, 10*time.Second)
	if c.Challenge == nil {
		c.Challenge = func(samples []model.Sample, champion model.Weights) (learn.Verdict, error) {
			return learn.Challenge(samples, champion, learn.Options{})
		}
	}
	return c
}

// Why learned weights are not published.
const (
	rejectNotBetter  = "not_better"
	rejectTooFew     = "too_few"
	rejectSuperseded = "superseded"
	rejectPinned     = "pinned"
	rejectUnusable   = "unusable"
	rejectError      = "error"
)

// Run learns in the background until ctx ends: one fit at a time, on one core, and
// never within Every of the last. It runs on the leader.
func (l *Learner) Run(ctx context.Context) error {
	tried, shared := uint64(0), uint64(0) // newest sample at the last fits
	lastShared := time.Time{}
	seen, last := uint64(0), time.Time{}
	for {
		seq := l.fsm.SampleSeq()
		if seq != seen {
			seen = seq
			l.metrics.accuracy(l.Accuracy())
		}
		if now := l.clock(); now.Sub(last) >= l.cfg.Every && l.due(seq, tried) {
			if last = now; l.refit(ctx, seq) {
				tried = seq
			}
		}
		if now := l.clock(); now.Sub(lastShared) >= l.cfg.Every && seq > shared {
			if next := l.refitCompany(ctx, seq, shared); next != shared {
				shared, lastShared = next, now
			}
		}
		if !wait.Sleep(ctx, max(10*time.Millisecond, min(time.Second, l.cfg.Every/4))) {
			return ctx.Err()
		}
	}
}

// due reports whether there is enough news: MinSamples samples, or a quarter of
// them and much worse predictions.
func (l *Learner) due(seq, tried uint64) bool {
	ws := l.fsm.WeightsState()
	if len(ws.Versions) > 0 { // also another leader's, or ones put in use by hand
		tried = max(tried, ws.Versions[0].SampleSeq)
	}
	if ws.Pinned || seq <= tried || l.prop.Version() < 2 { // nothing could be published
		return false
	}
	fresh, enough := seq-tried, uint64(l.cfg.MinSamples)
	return fresh >= enough || 4*fresh >= enough && drifted(l.fsm.NewestSamples(driftLook))
}

// refit learns, compares and publishes what is better. It reports whether that is
// settled: what could not be committed is tried again.
func (l *Learner) refit(ctx context.Context, seq uint64) (settled bool) {
	version, _ := l.fsm.Weights()
	l.mu.Lock()
	champion, samples := l.usable(), l.modelSamples()
	l.mu.Unlock()
	began := time.Now()
	v, err := l.challenge(ctx, samples, champion)
	if ctx.Err() != nil {
		return false
	}
	l.metrics.refit(l.clock(), time.Since(began))
	reason := ""
	settled = true
	switch {
	case err != nil:
		reason = rejectError
	case !v.Better && v.Tested == 0:
		reason = rejectTooFew
	case !v.Better:
		reason = rejectNotBetter
	default:
		reason, err = l.publish(ctx, version, seq, v)
		settled = reason != rejectError
	}
	attrs := []any{"samples", len(samples), "trained", v.Trained, "tested", v.Tested, "error_before", v.ChampionErr, "error_after", v.ChallengerErr, "dur", time.Since(began)}
	switch {
	case reason == "":
		l.metrics.published.Inc()
		l.log.InfoContext(ctx, "learned weights are published", append(attrs, "version", version+1)...)
		return settled
	case reason == rejectError || reason == rejectUnusable:
		l.log.WarnContext(ctx, "cannot learn", append(attrs, "err", err)...)
	default:
		l.log.DebugContext(ctx, "nothing better was learned", append(attrs, "reason", v.Reason, "err", err)...)
	}
	l.metrics.rejected.WithLabelValues(reason).Inc()
	return settled
}

// challenge compares what can be learned from samples with weights.
func (l *Learner) challenge(ctx context.Context, samples []model.Sample, champion model.Weights) (learn.Verdict, error) {
	return background(ctx, l, func() (learn.Verdict, error) { return l.cfg.Challenge(samples, champion) })
}

// background computes in its own goroutine, one at a time, which outlives a term
// that ends meanwhile: nothing waits for it, and its result is dropped.
func background[T any](ctx context.Context, l *Learner, compute func() (T, error)) (T, error) {
	type answer struct {
		v   T
		err error
	}
	var none T
	select {
	case l.busy <- struct{}{}:
	case <-ctx.Done():
		return none, ctx.Err()
	}
	done := make(chan answer, 1)
	l.fits.Go(func() {
		defer func() { <-l.busy }()
		var a answer
		defer func() { done <- a }()
		defer func() {
			// Descriptions of jobs by users must not be able to end the
			// coordinators one after the other.
			if r := recover(); r != nil {
				a = answer{err: fmt.Errorf("learning panicked: %v", r)}
			}
		}()
		a.v, a.err = compute()
	})
	select {
	case a := <-done:
		return a.v, a.err
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

const publishTimeout = 30 * time.Second

// publish proposes learned weights as the version after the one that they were
// compared with. It returns why not, "" if they are in use now.
func (l *Learner) publish(ctx context.Context, version, seq uint64, v learn.Verdict) (reason string, err error) {
	blob := v.Weights.Encode()
	if _, err := model.DecodeWeights(blob); err != nil {
		return rejectUnusable, err // no other coordinator could read them either
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	_, err = l.prop.One(ctx, InstallWeights(version+1, blob, &logv1.WeightsOrigin{
		Source: fsm.WeightsLearned, Trained: uint32(v.Trained), Tested: uint32(v.Tested), SampleSeq: seq,
		ChampionErrPpm: ppm(v.ChampionErr), ChallengerErrPpm: ppm(v.ChallengerErr), Reason: cluster.ClipText(v.Reason, fsm.MaxWeightsReason),
	}))
	switch e, _ := errors.AsType[*cluster.Error](err); {
	case err == nil:
		return "", nil
	case e != nil && e.Code == cluster.CodeConflict:
		return rejectSuperseded, err
	case e != nil && e.Code == cluster.CodeDenied:
		return rejectPinned, err
	default:
		return rejectError, err
	}
}

// InstallWeights returns the command that puts weights in use as a version, which
// must be the one after that in use.
func InstallWeights(version uint64, blob []byte, o *logv1.WeightsOrigin) *logv1.Command {
	sum := sha256.Sum256(blob)
	return &logv1.Command{Kind: &logv1.Command_InstallWeights{InstallWeights: &logv1.InstallWeights{
		Version: version, Blob: blob, Sha256: sum[:], Origin: o,
	}}}
}

// ppm converts an absolute logarithmic error to a relative one in millionths.
func ppm(logErr float64) int64 {
	e := math.Expm1(math.Abs(logErr))
	if math.IsNaN(e) || e > 1000 {
		e = 1000
	}
	return int64(math.Round(e * 1e6))
}
