package coordinator

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/notify"
)

// metrics are what a coordinator exports. Labels come from small fixed sets.
type metrics struct {
	reg        prometheus.Registerer
	calls      *prometheus.HistogramVec
	cycles     *prometheus.HistogramVec
	started    *prometheus.CounterVec
	rejections *prometheus.CounterVec
	preempted  *prometheus.CounterVec
	notices    *notify.Metrics
}

func newMetrics(reg prometheus.Registerer) *metrics {
	if reg == nil {
		reg = prometheus.NewRegistry()
	}
	m := &metrics{
		reg: reg,
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "berth_api_request_seconds", Help: "Time to answer a request.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 9),
		}, []string{"method", "code"}),
		cycles: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "berth_scheduler_cycle_seconds", Help: "Time of one scheduling pass, by kind.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 4, 9),
		}, []string{"kind"}),
		started: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_scheduler_started_total", Help: "Attempts placed, by kind of pass.",
		}, []string{"kind"}),
		rejections: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_plan_rejections_total", Help: "Parts of plans that the state machine rejected, by reason.",
		}, []string{"reason"}),
		preempted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_preemptions_total", Help: "Attempts that were asked to make room: order is for a job that goes before them, slowdown because they ran too slowly beside others.",
		}, []string{"reason"}),
	}
	m.notices = notify.NewMetrics(reg)
	for _, why := range []string{forAnother, forSpeed} {
		m.preempted.WithLabelValues(why) // so that it can be told from one that is missing
	}
	reg.MustRegister(m.calls, m.cycles, m.started, m.rejections, m.preempted)
	return m
}

func (m *metrics) call(method string, code codes.Code, d time.Duration) {
	m.calls.WithLabelValues(method, code.String()).Observe(d.Seconds())
}

func (m *metrics) cycle(kind string, d time.Duration) {
	m.cycles.WithLabelValues(kind).Observe(d.Seconds())
}

func (m *metrics) planned(kind string, r *cluster.PlanResult) {
	m.started.WithLabelValues(kind).Add(float64(len(r.Started)))
	for _, x := range r.Rejected {
		m.rejections.WithLabelValues(string(x.Reason.Code)).Inc()
	}
}

// watch registers the figures that are read when they are scraped.
func (m *metrics) watch(c *Coordinator) {
	gauge := func(name, help string, f func() float64) {
		m.reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, f))
	}
	gauge("berth_raft_is_leader", "1 on the leader.", func() float64 {
		if c.leading() != nil {
			return 1
		}
		return 0
	})
	gauge("berth_raft_applied_index", "Index of the last applied log entry.", func() float64 { return float64(c.raft.AppliedIndex()) })
	gauge("berth_raft_last_index", "Index of the last log entry.", func() float64 { return float64(c.raft.LastIndex()) })
	gauge("berth_learner_samples", "Runs that are remembered to learn from.", func() float64 { return float64(c.fsm.SampleCount()) })
	gauge("berth_learner_weights_version", "Version of the predictor's weights in use; 0 is the built-in ones.", func() float64 {
		v, _ := c.fsm.Weights()
		return float64(v)
	})
	gauge("berth_streams", "Shells, commands and outputs of jobs that users have open here.", func() float64 { return float64(c.relays.count()) })
	gauge("berth_nodes", "Registered nodes.", func() float64 { return float64(len(c.fsm.Nodes())) })
	for st := cluster.JobPending; st <= cluster.JobDeadline; st++ {
		m.reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "berth_jobs", Help: "Jobs by state.", ConstLabels: prometheus.Labels{"state": st.String()},
		}, func() float64 { return float64(c.fsm.Counts()[st]) }))
	}
}
