package cards

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/launch"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// Devices gives jobs access to GPUs. Calls are safe for concurrent use.
type Devices interface {
	// Grant returns the device names of GPUs, by UUID, and a one-line error, with what to do,
	// when one of them cannot be given now.
	Grant(uuids []string) ([]string, error)
}

// devicesEvery is how often GPUs that cannot be given are checked again.
const devicesEvery = 30 * time.Second

// errDevices ends a session whose hello no longer says which GPUs can be given.
var errDevices = errors.New("what can be given of the GPUs has changed")

// Names returns the device names for an assignment.
func (nc *Cards) Names(as *nodev1.Assignment) ([]string, error) {
	if nc.cfg.Devices == nil || len(as.Gpus) == 0 {
		return nil, nil
	}
	var uuids []string
	for _, g := range as.Gpus {
		uuids = append(uuids, g.Uuid)
	}
	names, err := nc.cfg.Devices.Grant(uuids)
	if err == nil {
		return names, nil
	}
	select { // the GPUs leave the node's offer at once
	case nc.recheck <- struct{}{}:
	default:
	}
	return nil, &launch.Error{Code: 125, Reason: launch.ReasonCDI, Node: true, Err: err}
}

// offered leaves out the GPUs that cannot be given to jobs, and says why, once for each reason.
func (nc *Cards) offered(ctx context.Context, cards []gpu.Card) []gpu.Card {
	if nc.cfg.Devices == nil {
		return cards
	}
	return slices.DeleteFunc(slices.Clone(cards), func(c gpu.Card) bool {
		_, err := nc.cfg.Devices.Grant([]string{c.UUID})
		if nc.news(c.UUID, err) && err != nil {
			nc.log.ErrorContext(ctx, "a GPU is not offered: jobs cannot be given it", "gpu", c.UUID, "err", err)
		}
		return err != nil
	})
}

// news reports whether the reason for withholding a GPU has changed since the last hello.
func (nc *Cards) news(uuid string, err error) bool {
	text := ""
	if err != nil {
		text = err.Error()
	}
	nc.mu.Lock()
	defer nc.mu.Unlock()
	if nc.kept == nil {
		nc.kept = map[string]string{}
	}
	was := nc.kept[uuid]
	nc.kept[uuid] = text
	return was != text
}

// WatchDevices ends the session when a GPU becomes available to jobs, or unavailable, so that
// the next hello says so.
func (nc *Cards) WatchDevices(ctx context.Context, hello *nodev1.Hello) error {
	if nc.cfg.Devices == nil || nc.cfg.GPUs == nil {
		return nil
	}
	tick := time.NewTicker(devicesEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-nc.recheck:
		}
		cards, err := nc.cfg.GPUs.Inventory(ctx)
		if err != nil {
			continue // reported when they are read
		}
		for _, c := range nc.ours(ctx, cards) {
			_, err := nc.cfg.Devices.Grant([]string{c.UUID})
			said := slices.ContainsFunc(hello.Gpus, func(g *nodev1.GPU) bool { return g.Uuid == c.UUID })
			if said != (err == nil) {
				return errDevices
			}
		}
	}
}
