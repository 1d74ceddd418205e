package learner

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm"
	"github.com/berth-scheduler/berth/model"
	"github.com/berth-scheduler/berth/model/gpuspec"
	"github.com/berth-scheduler/berth/model/interfere"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

const (
	// briefly is the share of a run below which a neighbour does not count, and by
	// which a share may differ from a whole number of neighbours.
	briefly = 0.1
	// longEnough is the least share of a run next to one neighbour from which the
	// speed next to it can be derived.
	longEnough = 0.3
)

// ModeOf returns how shares of a GPU with the given cap mode interact.
func ModeOf(capMode string) interfere.Mode {
	switch capMode {
	case "mps":
		return interfere.MPS
	case "mig":
		return interfere.MIG
	}
	return interfere.TimeSlicing
}

// familyOf groups jobs that run the same model, at any batch size.
func familyOf(f *model.Features) string {
	switch {
	case !f.Known() || f.Model == "":
		return ""
	case f.Mode == model.Training:
		return "train/" + f.Model
	}
	return "infer/" + f.Model
}

// alone is what a job took by itself on one type of GPU.
type alone struct {
	step, whole, milli []float64 // seconds a step, seconds of runs without steps, utilization
}

type aloneKey struct{ sig, gpu string }

func keyOf(s *model.Sample) aloneKey { return aloneKey{s.Signature, gpuspec.Normalize(s.GPUType)} }

// observations derives from samples, oldest first, how fast jobs were next to
// others: the median time of their own runs alone over that of the shared one, per
// step if steps are known. runs are the same samples for the model.
func observations(samples []fsm.Sample, runs []model.Sample) []interfere.Observation {
	solo, family := map[aloneKey]*alone{}, map[string]string{}
	for i := range samples {
		s, r := &samples[i], &runs[i]
		if f := familyOf(&r.Features); f != "" {
			family[s.Signature] = f
		}
		if s.Neighbours > 0 || s.Censored || s.Duration <= 0 {
			continue
		}
		a := solo[keyOf(r)]
		if a == nil {
			a = &alone{}
			solo[keyOf(r)] = a
		}
		if r.Steps > 0 {
			a.step = append(a.step, r.Seconds/float64(r.Steps))
		} else {
			a.whole = append(a.whole, r.Seconds)
		}
		if s.Milli > 0 {
			a.milli = append(a.milli, float64(s.Milli))
		}
	}
	job := func(sig string, gpu string, milli int64) interfere.Job {
		j := interfere.Job{Signature: sig, Family: family[sig], Util: interfere.Unknown, Bandwidth: interfere.Unknown}
		if a := solo[aloneKey{sig, gpu}]; a != nil && len(a.milli) > 0 {
			j.Util = min(1, median(a.milli)/1000)
		} else if milli > 0 {
			j.Util = min(1, float64(milli)/1000)
		}
		return j
	}
	var out []interfere.Observation
	for i := range samples {
		s, r := &samples[i], &runs[i]
		mode := ModeOf(s.CapMode)
		a := solo[keyOf(r)]
		if len(s.Company) == 0 || mode == interfere.MIG || s.Censored || s.Duration <= 0 || a == nil {
			continue
		}
		ratio, ok := a.over(r)
		if !ok {
			continue
		}
		o := interfere.Observation{GPUType: s.GPUType, Mode: mode, User: strconv.FormatUint(uint64(s.UID), 10)}
		gpu := gpuspec.Normalize(s.GPUType)
		if o.Others, o.Speed = besideWhom(s, ratio, func(c *fsm.Company) interfere.Job { return job(c.Signature, gpu, c.Milli) }); len(o.Others) == 0 {
			continue
		}
		if o.Job = job(s.Signature, gpu, s.Predicted.Milli); o.Check() == nil {
			out = append(out, o)
		}
	}
	return out
}

// over returns the time alone over that of a run.
func (a *alone) over(r *model.Sample) (float64, bool) {
	switch {
	case r.Steps > 0 && len(a.step) > 0 && r.Seconds > 0:
		return median(a.step) / (r.Seconds / float64(r.Steps)), true
	case r.Steps == 0 && len(a.whole) > 0 && r.Seconds > 0:
		return median(a.whole) / r.Seconds, true
	}
	return 0, false
}

// besideWhom returns which jobs a run shared with, and its speed next to them; none
// if that cannot be derived. One neighbour may have been there for part of the
// time: the rest ran at speed 1, and the ratio of times is the mean speed. Of
// several, each must have been there all the time.
func besideWhom(s *fsm.Sample, ratio float64, job func(*fsm.Company) interfere.Job) ([]interfere.Job, float64) {
	var others []interfere.Job
	kinds, part := 0, 1.0
	for i := range s.Company {
		c := &s.Company[i]
		share := c.Overlap.Seconds() / s.Duration.Seconds()
		if share < briefly {
			continue
		}
		n := max(1, math.Round(share)) // of these at a time
		switch off := math.Abs(share-n) > briefly; {
		case off && (share > 1 || share < longEnough):
			return nil, 0
		case off:
			part = share
		}
		kinds++
		for range int(min(n, interfere.MaxSet)) {
			others = append(others, job(c))
		}
	}
	switch {
	case len(others) >= interfere.MaxSet || kinds > 1 && part < 1:
		return nil, 0
	case part < 1:
		return others, (ratio - (1 - part)) / part
	}
	return others, ratio
}

func median(v []float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// refitCompany learns how jobs that share a GPU slow each other down, once
// MinSamples new samples came, and publishes what is new. tried is the newest
// sample of the last attempt; it returns that of this one.
func (l *Learner) refitCompany(ctx context.Context, seq, tried uint64) uint64 {
	have := l.fsm.Interference()
	tried = max(tried, have.SampleSeq)
	if seq < tried+uint64(l.cfg.MinSamples) || l.fsm.WeightsState().Pinned || l.prop.Version() < 3 {
		return tried
	}
	l.mu.Lock()
	samples, runs := l.pairedSamples()
	l.mu.Unlock()
	type fitted struct {
		blob []byte
		n    int
	}
	began := time.Now()
	fit, err := background(ctx, l, func() (fitted, error) {
		obs := observations(samples, runs)
		if len(obs) == 0 {
			return fitted{}, nil
		}
		return fitted{interfere.Fit(obs).Encode(), len(obs)}, nil
	})
	if ctx.Err() != nil {
		return tried
	}
	if err == nil && fit.n > 0 && !bytes.Equal(fit.blob, have.Blob) {
		err = l.publishCompany(ctx, have.Version+1, seq, fit.blob, fit.n)
	}
	l.metrics.observations.Set(float64(fit.n))
	attrs := []any{"observations", fit.n, "bytes", len(fit.blob), "dur", time.Since(began)}
	if err != nil {
		l.log.WarnContext(ctx, "cannot learn from jobs that shared", append(attrs, "err", err)...)
	} else if fit.n > 0 {
		l.log.InfoContext(ctx, "learned how jobs get on with each other", attrs...)
	}
	return seq
}

// publishCompany proposes what was learned, once it is sure that it can be read
// again. Weights pinned meanwhile are no error.
func (l *Learner) publishCompany(ctx context.Context, version, seq uint64, blob []byte, n int) error {
	if _, err := interfere.Decode(blob); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	_, err := l.prop.One(ctx, installInterference(version, blob, n, seq))
	if e, ok := errors.AsType[*cluster.Error](err); ok && (e.Code == cluster.CodeConflict || e.Code == cluster.CodeDenied) {
		return nil
	}
	if err == nil {
		l.metrics.company.Inc()
	}
	return err
}

func installInterference(version uint64, blob []byte, n int, seq uint64) *logv1.Command {
	sum := sha256.Sum256(blob)
	return &logv1.Command{Kind: &logv1.Command_InstallInterference{InstallInterference: &logv1.InstallInterference{
		Version: version, Blob: blob, Sha256: sum[:], Observations: uint32(min(n, math.MaxUint32)), SampleSeq: seq,
	}}}
}
