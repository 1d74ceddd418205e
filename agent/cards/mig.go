package cards

import (
	"context"
	"errors"
	"fmt"

	"github.com/berth-scheduler/berth/agent/gpu"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// cutter is what replaces the instances of GPUs in MIG mode, nil if the site or the provider
// does not allow it.
func (nc *Cards) cutter() gpu.Cutter {
	c, _ := nc.cfg.GPUs.(gpu.Cutter)
	if !nc.cfg.Recut {
		return nil
	}
	return c
}

// migCards describes the GPUs in MIG mode whose instances may be replaced. One with an
// instance of unknown place is not among them.
func (nc *Cards) migCards(cards []gpu.Card) []*nodev1.MIGCard {
	if nc.cutter() == nil {
		return nil
	}
	var out []*nodev1.MIGCard
	for i := range cards {
		c := &cards[i]
		if c.MIG != gpu.ModeOn || len(c.Profiles) == 0 {
			continue
		}
		m := &nodev1.MIGCard{Uuid: c.UUID, Type: c.Type}
		for _, p := range c.Profiles {
			starts := make([]uint32, len(p.Starts))
			for k, s := range p.Starts {
				starts[k] = uint32(s)
			}
			m.Profiles = append(m.Profiles, &nodev1.MIGProfile{Name: p.Name, MemMib: p.MemMiB, Compute: uint32(p.Compute), Size: uint32(p.Size), Starts: starts})
		}
		placed := true
		for _, in := range c.Instances {
			placed = placed && in.Size > 0
			m.Instances = append(m.Instances, &nodev1.MIGInstance{Uuid: in.UUID, Profile: in.Profile, Start: uint32(in.Start), Size: uint32(in.Size)})
		}
		if placed {
			out = append(out, m)
		}
	}
	return out
}

// Cut replaces instances of a GPU, unless one of those that go is held by an attempt
// according to held, or by any other process. Whatever comes of it, the leader is told which
// instances there are.
func (nc *Cards) Cut(ctx context.Context, ask *nodev1.CutGPU, held func(uuid string) bool) error {
	c := nc.cutter()
	if c == nil {
		return errors.New("this node's GPUs are not cut anew: gpus.recut is off")
	}
	cut := gpu.Cut{UUID: ask.GetUuid(), Drop: ask.GetDrop()}
	for _, m := range ask.GetMake() {
		cut.Make = append(cut.Make, gpu.Piece{Profile: m.Profile, Start: int(m.Start)})
	}
	err := cut.Check()
	for _, uuid := range cut.Drop {
		if err == nil && held(uuid) {
			err = fmt.Errorf("an attempt is on instance %s", uuid)
		}
	}
	if err == nil {
		err = nc.unused(ctx, cut.Drop)
	}
	if err == nil {
		err = c.Cut(ctx, cut)
	}
	why := ""
	if err != nil {
		why = fmt.Sprintf("GPU %s was not cut anew: %v", cut.UUID, err)
	}
	nc.States.SetProblem("mig", why)
	nc.States.Again()
	return err
}

// unused returns an error if a process is on one of the instances.
func (nc *Cards) unused(ctx context.Context, uuids []string) error {
	usage, err := nc.cfg.GPUs.Usage(ctx)
	if err != nil {
		return err
	}
	for _, uuid := range uuids {
		for i := range usage {
			if u := &usage[i]; u.UUID == uuid && len(u.Processes) > 0 {
				return fmt.Errorf("process %d is on instance %s", u.Processes[0].PID, uuid)
			}
		}
	}
	return nil
}
