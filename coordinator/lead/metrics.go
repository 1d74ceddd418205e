package lead

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/coordinator/figures"
	"github.com/berth-scheduler/berth/coordinator/notify"
	"github.com/berth-scheduler/berth/scheduler/power"
)

// metrics are what a leader exports. Labels come from small fixed sets.
type metrics struct {
	figures    *figures.Figures
	cycles     *prometheus.HistogramVec
	started    *prometheus.CounterVec
	rejections *prometheus.CounterVec
	preempted  *prometheus.CounterVec
	notices    *notify.Metrics
	power      *prometheus.CounterVec
	forecast   *prometheus.GaugeVec
}

// The programs of power saving, and how they ended.
const (
	suspends = "suspend"
	resumes  = "resume"
	ran      = "ran"
	failed   = "failed"
	late     = "late"
)

func newMetrics(reg prometheus.Registerer, f *figures.Figures) *metrics {
	m := &metrics{
		figures: f, notices: notify.NewMetrics(reg),
		cycles: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "berth_scheduler_cycle_seconds", Help: "Duration of a scheduling pass, by kind.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 4, 9),
		}, []string{"kind"}),
		started: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_scheduler_started_total", Help: "Attempts placed, by kind of pass.",
		}, []string{"kind"}),
		rejections: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_plan_rejections_total", Help: "Parts of plans that the state machine rejected, by reason.",
		}, []string{"reason"}),
		preempted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_preemptions_total", Help: "Attempts that were preempted: order for a job with precedence, slowdown because they ran too slowly on a shared GPU, loan to return GPUs lent by another partition.",
		}, []string{"reason"}),
	}
	m.power = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "berth_power_programs_total", Help: "Runs of programs that power a node down (suspend) or up (resume): ran, failed, or ran but the node did not follow in time (late).",
	}, []string{"program", "result"})
	m.forecast = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "berth_power_forecast_nodes", Help: "Nodes of a kind under power_saving.policy forecast, on the leader: all, up, needed now, the most forecast to be needed, and kept up for that.",
	}, []string{"kind", "figure"})
	for _, program := range []string{suspends, resumes} {
		for _, result := range []string{ran, failed, late} {
			m.power.WithLabelValues(program, result)
		}
	}
	for _, why := range []string{forAnother, forSpeed} {
		m.preempted.WithLabelValues(why) // so that zero differs from missing
	}
	reg.MustRegister(m.cycles, m.started, m.rejections, m.preempted, m.power, m.forecast)
	return m
}

// foreseen exports the forecast, and drops the previous one. There are at most
// power.MaxKinds kinds, and one of all others.
func (m *metrics) foreseen(os []*power.Outlook) {
	m.forecast.Reset()
	for _, o := range os {
		figures := map[string]int{"all": o.Nodes, "up": o.Up, "needed": o.Needed}
		if o.Known {
			figures["forecast"], figures["kept"] = o.Peak, o.Keep
		}
		for name, n := range figures {
			m.forecast.WithLabelValues(string(o.Kind), name).Set(float64(n))
		}
	}
}

// powered counts a program that ended.
func (m *metrics) powered(program string, well bool) {
	result := failed
	if well {
		result = ran
	}
	m.power.WithLabelValues(program, result).Inc()
}

func (m *metrics) cycle(kind string, d time.Duration, depth int) {
	m.figures.Planned(kind, d, depth)
	m.cycles.WithLabelValues(kind).Observe(d.Seconds())
}

func (m *metrics) planned(kind string, r *dispatch.Result) {
	m.started.WithLabelValues(kind).Add(float64(len(r.Started)))
	m.figures.Started(kind, len(r.Started))
	for _, x := range r.Rejected {
		m.rejections.WithLabelValues(string(x.Reason.Code)).Inc()
	}
}
