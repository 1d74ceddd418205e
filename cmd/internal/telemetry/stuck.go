package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berth-scheduler/berth/cluster/wait"
)

// Stuck is the name of the metric that NewStuck exports.
const Stuck = "berth_stuck_seconds"

// stuckAfter is longer than anything that is recorded should last.
const stuckAfter = 3 * time.Minute

type stuck struct {
	of   *wait.Underway
	desc *prometheus.Desc
}

// NewStuck returns a metric of what lasts much longer than it should.
func NewStuck(of *wait.Underway) prometheus.Collector {
	return stuck{of, prometheus.NewDesc(Stuck, "How long a request is in progress, or the step of an attempt fails, by what it is: the longest of each, if longer than three minutes; and since when SIGKILL does not end a process of a job. berth doctor reports it.", []string{"what"}, nil)}
}

// Describe implements prometheus.Collector.
func (s stuck) Describe(ch chan<- *prometheus.Desc) { ch <- s.desc }

// Collect implements prometheus.Collector.
func (s stuck) Collect(ch chan<- prometheus.Metric) {
	for what, d := range s.of.Longer(stuckAfter) {
		ch <- prometheus.MustNewConstMetric(s.desc, prometheus.GaugeValue, d.Seconds(), what)
	}
}
