package agent

import (
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// measured is what a worker keeps to measure its attempt while it runs.
type measured struct {
	power   map[string]energy // what its cards had drawn when it began
	release func()            // of the sampler's fast rate; nil without GPUs
}

// measure begins to measure a running attempt.
func (t *task) measure(as *nodev1.Assignment) {
	t.measured.power = t.agent.power.mark(as.GetGpus())
	if len(as.GetGpus()) > 0 && t.measured.release == nil {
		t.measured.release = t.agent.sampler.Hold()
	}
}

// stop ends what measure began. It may be called without it, and twice.
func (m *measured) stop() {
	if m.release != nil {
		m.release()
	}
}
