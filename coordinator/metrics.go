package coordinator

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/figures"
	"github.com/berth-scheduler/berth/coordinator/raftnode"
)

// metrics are what a coordinator exports. Labels come from small fixed sets.
type metrics struct {
	reg     prometheus.Registerer
	figures *figures.Figures
}

func newMetrics(reg prometheus.Registerer, now time.Time) *metrics {
	if reg == nil {
		reg = prometheus.NewRegistry()
	}
	return &metrics{reg: reg, figures: figures.New(now)}
}

// watch registers the metrics that are computed when scraped.
func (m *metrics) watch(c *Coordinator) {
	gauge := func(name, help string, f func() float64) {
		m.reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, f))
	}
	gauge("berth_raft_is_leader", "1 on the leader, else 0.", func() float64 {
		if c.office.Term() != nil {
			return 1
		}
		return 0
	})
	gauge("berth_raft_applied_index", "Index of the last applied log entry.", func() float64 { return float64(c.raft.AppliedIndex()) })
	gauge("berth_raft_last_index", "Index of the last log entry.", func() float64 { return float64(c.raft.LastIndex()) })
	gauge("berth_raft_snapshot_index", "Index of the last log entry that a snapshot holds: a start replays those after it.", func() float64 { return float64(c.raft.SnapshotIndex()) })
	gauge("berth_raft_log_bytes", "Size of the file that holds the log.", func() float64 { return float64(c.raft.LogBytes()) })
	m.reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "berth_raft_appended_bytes_total", Help: "Bytes of log entries written.",
	}, func() float64 { return float64(c.raft.Appended()) }))
	for _, op := range raftnode.Operations() {
		m.reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "berth_raft_longest_seconds", Help: "The longest that an operation took since the start: append, trim, vote and probe are writes to the disk, apply is a batch of entries, replay the same at the start, capture the part of a snapshot in which nothing is applied, snapshot the rest of it.",
			ConstLabels: prometheus.Labels{"op": op},
		}, func() float64 { return c.raft.Longest(op).Seconds() }))
	}
	gauge("berth_learner_samples", "Runs kept to learn from.", func() float64 { return float64(c.fsm.SampleCount()) })
	gauge("berth_learner_weights_version", "Version of the predictor's weights in use; 0 for the built-in ones.", func() float64 {
		v, _ := c.fsm.Weights()
		return float64(v)
	})
	gauge("berth_streams", "Shells, commands and outputs of jobs that users have open through this coordinator.", func() float64 { return float64(c.nodes.Streams()) })
	gauge("berth_gossip_members", "Coordinators and agents that gossip, as seen by this one; 0 if gossip is off.", func() float64 { return float64(c.nodes.Gossip().Members) })
	gauge("berth_gossip_stray_mib", "GPU memory that is not used for jobs only because of gossip; on the leader.", func() float64 { return float64(c.nodes.Gossip().StrayMiB) })
	m.reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "berth_gossip_refused_total", Help: "Gossip messages not signed by the node that they are about.",
	}, func() float64 { return float64(c.nodes.Gossip().Refused) }))
	gauge("berth_nodes_cut_off", "Nodes that the leader cannot reach but others can; on the leader.", func() float64 { return float64(c.nodes.Gossip().CutOff) })
	gauge("berth_nodes", "Registered nodes.", func() float64 { return float64(len(c.fsm.Nodes())) })
	for st := cluster.PowerUp; st <= cluster.PowerFailed; st++ {
		m.reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "berth_nodes_power", Help: "Nodes by whether they are powered on.", ConstLabels: prometheus.Labels{"state": st.String()},
		}, func() (count float64) {
			for _, n := range c.fsm.Nodes() {
				if n.Power.State == st {
					count++
				}
			}
			return count
		}))
	}
	for st := cluster.JobPending; st <= cluster.JobDeadline; st++ {
		m.reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "berth_jobs", Help: "Jobs by state.", ConstLabels: prometheus.Labels{"state": st.String()},
		}, func() float64 { return float64(c.fsm.Counts()[st]) }))
	}
}
