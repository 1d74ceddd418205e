package daemon

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berth-scheduler/berth/agent"
	"github.com/berth-scheduler/berth/agent/gpu/health"
	"github.com/berth-scheduler/berth/cmd/internal/config"
)

// gpuHealth returns how the agent monitors its GPUs.
func gpuHealth(g config.GPUs) (agent.HealthConfig, error) {
	actions, err := g.Health.Actions()
	if err != nil {
		return agent.HealthConfig{}, fmt.Errorf("gpus.health.xids: %w", err)
	}
	h := agent.HealthConfig{
		Xids: health.NewTable(actions), Every: g.Health.Every, Within: g.Health.Within, SlackMiB: int64(g.Health.SlackMiB),
		Check: g.Health.Check, CheckTime: g.Health.CheckTime,
	}
	h.Kmsg, h.PCI = g.Health.Paths(g.Provider)
	if g.Provider == "nvml" { // simulated GPUs keep exact accounts
		h.Quiet = g.Health.Quiet
	}
	return h, nil
}

// healthMetrics are the metrics of an agent's GPUs, read when scraped.
type healthMetrics struct {
	agent         *agent.Agent
	faults, state *prometheus.Desc
}

func newHealthMetrics(a *agent.Agent) *healthMetrics {
	return &healthMetrics{
		agent:  a,
		faults: prometheus.NewDesc("berth_agent_gpu_faults_total", "Faults reported by GPUs, by the action that followed.", []string{"action"}, nil),
		state:  prometheus.NewDesc("berth_agent_gpus", "GPUs of the node, by state; only those that are ok take new jobs.", []string{"state"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (m *healthMetrics) Describe(ch chan<- *prometheus.Desc) { ch <- m.faults; ch <- m.state }

// Collect implements prometheus.Collector.
func (m *healthMetrics) Collect(ch chan<- prometheus.Metric) {
	faults := m.agent.Faults()
	for a := health.Record; a <= health.End; a++ {
		ch <- prometheus.MustNewConstMetric(m.faults, prometheus.CounterValue, float64(faults[a.String()]), a.String())
	}
	for state, n := range m.agent.CardStates() {
		ch <- prometheus.MustNewConstMetric(m.state, prometheus.GaugeValue, float64(n), state)
	}
}
