package agent

import (
	"context"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/power"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// openPower reads what cards are set to for attempts.
func (a *Agent) openPower() (err error) {
	gpus, _ := a.cfg.GPUs.(gpu.Tuner)
	if a.tuned, err = power.Open(a.cfg.Dir, gpus, a.log); err == nil && a.cfg.Failpoint != nil {
		a.tuned.Failpoint(a.cfg.Failpoint)
	}
	return err
}

// setPower sets the cards of an attempt that is about to start to the power limit and
// clock that it is to have, if they are its own alone. That it can't costs it nothing else.
func (t *launching) setPower(ctx context.Context, as *nodev1.Assignment) {
	ask := cluster.GPUPower{Cap: cluster.PowerCap(as.PowerCap), Freq: cluster.GPUFreq(as.GpuFreq)}
	var uuids []string
	for _, s := range as.Gpus {
		if uuids = append(uuids, s.Uuid); !s.Exclusive {
			ask = cluster.GPUPower{}
		}
	}
	t.power = powerToNode(t.agent.tuned.Set(ctx, t.id.String(), uuids, ask))
	if t.power != nil {
		t.agent.cards.States.Again() // for the limits to be told
	}
}

func powerToNode(cards []cluster.CardPower) (out []*nodev1.CardPower) {
	for _, p := range cards {
		out = append(out, &nodev1.CardPower{Uuid: string(p.GPU), CapW: p.CapW, ClockMhz: p.ClockMHz, Why: p.Why})
	}
	return out
}
