package lead

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
	"github.com/berth-scheduler/berth/scheduler/power"
)

const (
	// deferEvery is the interval of decisions about which jobs wait.
	deferEvery = 2 * time.Second
	// deferMost is how many jobs are changed each time: a signal that changes moves
	// all waiting ones, each by a log entry with its whole spec.
	deferMost = 100
)

// EnergySignal is where a site publishes the cost of power, or the carbon that it
// causes.
type EnergySignal struct {
	// Read returns the signal as power.ReadSignal takes it, and Every is its
	// interval.
	Read  func(ctx context.Context) ([]byte, error)
	Every time.Duration
	// Unit is for people, such as EUR/kWh.
	Unit string
}

// energy is the last signal read; nil before the first, and on a coordinator that
// does not lead.
type energy struct {
	atomic.Pointer[power.Signal]
	// failed means that the last attempt to read it failed, or that it does not
	// cover now.
	failed atomic.Bool
}

// Warnings says in words what a leader cannot do as configured. All users may see
// them: the cause is in its log.
func (l *Leader) Warnings() (out []string) {
	if l.energy.failed.Load() {
		says := "no job waits for cheaper power: energy_signal cannot be read, see the log"
		if _, known := l.energy.Load().At(cluster.TimeOf(l.clock())); known {
			says = "jobs wait by an old energy_signal: it cannot be read now, see the log"
		}
		out = append(out, says)
	}
	return out
}

func (e *energy) register(l *Leader, reg prometheus.Registerer) {
	if l.cfg.Energy == nil {
		return
	}
	now := func() (float64, bool) { return e.Load().At(cluster.TimeOf(l.clock())) }
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "berth_energy_signal", Help: "What power costs now, as the leader has read it of the site's signal; 0 where it does not know.",
	}, func() float64 { v, _ := now(); return v }), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "berth_energy_signal_stale", Help: "1 where it is not known what power costs now, so that no job waits for it to be cheaper, but tasks of arrays that already do: on the leader, the signal is missing or too old.",
	}, func() float64 {
		if _, known := now(); known {
			return 0
		}
		return 1
	}))
}

// Defer sets until when a job about to be submitted waits for cheaper power. The
// warning says that no job does so here.
func (l *Leader) Defer(j *cluster.Job, now cluster.Time) (warning string) {
	switch {
	case j.Spec.Defer == 0:
		return ""
	case l.cfg.Energy == nil:
		return "defer: this cluster does not know what power costs (energy_signal of its coordinators), so the job waits for nothing"
	}
	if w, waits := power.DeferralOf(j, now).Of(l.energy.Load(), now); waits {
		j.Spec.Begin = w.Until
	}
	return ""
}

// Cheaper says in words what cheaper power a job waits for, "" for none.
func (l *Leader) Cheaper(j *cluster.Job, now cluster.Time) string {
	s := l.energy.Load()
	if j.Spec.Defer == 0 || j.Spec.Begin <= now || s == nil {
		return ""
	}
	w, waits := power.DeferralOf(j, j.Submitted).Of(s, now)
	if !waits {
		return ""
	}
	unit := ""
	if s.Unit != "" {
		unit = " " + s.Unit
	}
	return fmt.Sprintf("waits for cheaper power: %s instead of %s%s at %s", three(w.Then), three(w.Instead), unit, w.Until.Std().UTC().Format("2006-01-02 15:04 UTC"))
}

func three(x float64) string { return strconv.FormatFloat(x, 'g', 3, 64) }

// deferJobs reads the cost of power, and updates until when jobs wait for cheaper
// power, until ctx ends.
func (l *Leader) deferJobs(ctx context.Context) error {
	defer l.energy.failed.Store(false)
	l.energy.Store(nil)
	if l.cfg.Energy == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	look := time.NewTicker(deferEvery)
	defer look.Stop()
	var read time.Time
	for {
		if time.Since(read) >= l.cfg.Energy.Every {
			read = time.Now()
			l.energy.read(ctx, l)
		}
		l.energy.deferAnew(ctx, l)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
		}
	}
}

// read reads the signal of l again. If that fails the previous one stays, which
// holds as far as it goes.
func (e *energy) read(ctx context.Context, l *Leader) {
	data, err := l.cfg.Energy.Read(ctx)
	var s *power.Signal
	if err == nil {
		s, err = power.ReadSignal(data, l.cfg.Energy.Unit)
	}
	if err == nil {
		e.Store(s)
		if _, known := s.At(cluster.TimeOf(l.clock())); !known {
			err = errors.New("it says nothing of now")
		}
	}
	if e.failed.Store(err != nil && ctx.Err() == nil); e.failed.Load() {
		l.log.WarnContext(ctx, "the signal of what power costs cannot be read", "err", err)
	}
}

// deferAnew updates when jobs begin that wait for cheaper power, or might.
func (e *energy) deferAnew(ctx context.Context, l *Leader) {
	now := cluster.TimeOf(l.clock())
	jobs, _ := l.fsm.Jobs(fsm.Query{States: []cluster.JobState{cluster.JobPending}, Keep: func(j *cluster.Job) bool {
		return j.Spec.Defer > 0 && !j.InArray() && len(j.Attempts) == 0 && j.Spec.Begin > now
	}})
	changed := 0
	for _, j := range jobs {
		begin := cluster.Time(0)
		if w, waits := power.DeferralOf(j, j.Submitted).Of(e.Load(), now); waits {
			begin = w.Until
		}
		if begin == j.Spec.Begin {
			continue
		}
		if changed++; changed > deferMost {
			return
		}
		spec := *j.Spec
		spec.Begin = begin
		if _, err := l.prop.One(ctx, &logv1.Command{Kind: &logv1.Command_UpdateJob{UpdateJob: &logv1.UpdateJob{Job: uint64(j.ID), Spec: conv.SpecNaming(&spec), Base: j.Revision}}}); err != nil {
			l.log.DebugContext(ctx, "cannot change when a job begins", "job", j.ID.String(), "err", err)
		}
	}
}
