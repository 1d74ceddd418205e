package profile

import (
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// Uses returns what the running attempts have used of their GPUs since they began, by attempt.
// Like all measurements, the sums outlive the agent.
func (r *Recorder) Uses() []*nodev1.AttemptUse {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*nodev1.AttemptUse
	for _, id := range r.ids() {
		t := r.tracks[id]
		if !t.live || len(t.Cards) == 0 {
			continue
		}
		u := &nodev1.AttemptUse{Job: uint64(id.Job), Attempt: id.No}
		for _, c := range t.Cards {
			u.BusyMs, u.KnownMs, u.PeakMib = u.BusyMs+c.Util.Sum, u.KnownMs+c.Util.Ms, max(u.PeakMib, c.PeakMiB)
		}
		out = append(out, u)
	}
	return out
}
