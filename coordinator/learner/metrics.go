package learner

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what the learner exports.
type metrics struct {
	seconds   prometheus.Histogram // counts the refits
	last      prometheus.Gauge
	published prometheus.Counter
	rejected  *prometheus.CounterVec
	absurd    prometheus.Counter
	memory    *prometheus.GaugeVec
	within    prometheus.Gauge

	observations prometheus.Gauge
	company      prometheus.Counter
	again        prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "berth_learner_refit_seconds", Help: "Time to learn weights and compare them; its count is the number of refits.",
			Buckets: prometheus.ExponentialBuckets(0.01, 3, 8),
		}),
		last: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "berth_learner_last_refit_timestamp_seconds", Help: "When this coordinator last learned; 0 if never.",
		}),
		published: prometheus.NewCounter(prometheus.CounterOpts{Name: "berth_learner_published_total", Help: "Learned weights that were put into use."}),
		rejected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_learner_rejected_total", Help: "Learned weights that were rejected, by reason.",
		}, []string{"reason"}),
		absurd: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "berth_learner_absurd_samples_total", Help: "Impossible measurements, from which nothing is learned.",
		}),
		memory: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "berth_learner_error_ratio", Help: "Median relative error of predictions at placement, over the newest runs.",
		}, []string{"of"}),
		within: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "berth_learner_within_p95_ratio", Help: "Share of the newest runs whose memory stayed within the upper estimate.",
		}),
	}
	m.observations = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "berth_learner_shared_runs", Help: "Runs on shared GPUs whose speed was known, at the last fit.",
	})
	m.company = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "berth_learner_interference_published_total", Help: "Models of interference that were put into use.",
	})
	m.again = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "berth_learner_predicted_again_total", Help: "Waiting jobs that got new estimates because something was learned.",
	})
	for _, r := range []string{rejectNotBetter, rejectTooFew, rejectSuperseded, rejectPinned, rejectUnusable, rejectError} {
		m.rejected.WithLabelValues(r)
	}
	reg.MustRegister(m.seconds, m.last, m.published, m.rejected, m.absurd, m.memory, m.within, m.observations, m.company, m.again)
	return m
}

func (m *metrics) refit(now time.Time, d time.Duration) {
	m.seconds.Observe(d.Seconds())
	m.last.Set(float64(now.Unix()))
}

func (m *metrics) accuracy(a Accuracy) {
	m.memory.WithLabelValues("memory").Set(a.Memory.Median)
	m.memory.WithLabelValues("utilization").Set(a.Util.Median)
	m.memory.WithLabelValues("time").Set(a.Time.Median)
	m.within.Set(a.WithinP95)
}
