package agent

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/agent/gpu"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// Devices knows how cards are given to jobs. Calls are safe for concurrent use.
type Devices interface {
	// Grant returns the device names of cards, by UUID, and an error of one
	// line, with what to do, when one of them cannot be given now.
	Grant(uuids []string) ([]string, error)
}

// devicesEvery is how often cards that cannot be given are looked at again.
const devicesEvery = 30 * time.Second

// errDevices ends a session whose hello no longer says what can be given.
var errDevices = errors.New("what can be given of the GPUs has changed")

// devices returns the device names for an assignment.
func (a *Agent) devices(as *nodev1.Assignment) ([]string, error) {
	if a.cfg.Devices == nil || len(as.Gpus) == 0 {
		return nil, nil
	}
	var uuids []string
	for _, g := range as.Gpus {
		uuids = append(uuids, g.Uuid)
	}
	names, err := a.cfg.Devices.Grant(uuids)
	if err == nil {
		return names, nil
	}
	select { // the cards go from the node's offer at once
	case a.recheck <- struct{}{}:
	default:
	}
	return nil, &LaunchError{Code: 125, Reason: ReasonCDI, Node: true, Err: err}
}

// offered leaves out the cards that no job can be given, and says why, once
// for each reason.
func (a *Agent) offered(ctx context.Context, cards []gpu.Card) []gpu.Card {
	if a.cfg.Devices == nil {
		return cards
	}
	return slices.DeleteFunc(slices.Clone(cards), func(c gpu.Card) bool {
		_, err := a.cfg.Devices.Grant([]string{c.UUID})
		if a.news(c.UUID, err) && err != nil {
			a.log.ErrorContext(ctx, "a GPU is not offered: jobs cannot be given it", "gpu", c.UUID, "err", err)
		}
		return err != nil
	})
}

// news tells whether what keeps a card from jobs is another thing than at the
// last hello.
func (a *Agent) news(uuid string, err error) bool {
	text := ""
	if err != nil {
		text = err.Error()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.kept == nil {
		a.kept = map[string]string{}
	}
	was := a.kept[uuid]
	a.kept[uuid] = text
	return was != text
}

// watchDevices ends the session when a card comes to be, or ceases to be, one
// that jobs can be given, so that the next hello says so.
func (a *Agent) watchDevices(ctx context.Context, hello *nodev1.Hello) error {
	if a.cfg.Devices == nil || a.cfg.GPUs == nil {
		return nil
	}
	tick := time.NewTicker(devicesEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-a.recheck:
		}
		cards, err := a.cfg.GPUs.Inventory(ctx)
		if err != nil {
			continue // who reads them says so
		}
		for _, c := range a.ours(ctx, cards) {
			_, err := a.cfg.Devices.Grant([]string{c.UUID})
			said := slices.ContainsFunc(hello.Gpus, func(g *nodev1.GPU) bool { return g.Uuid == c.UUID })
			if said != (err == nil) {
				return errDevices
			}
		}
	}
}

// steersHooks tells whether a variable is an order to the NVIDIA toolkit and
// not to the job's own programs: no user and no image gives those. What CUDA's
// libraries read, such as NVIDIA_TF32_OVERRIDE, is the job's.
func steersHooks(line string) bool {
	name, _, _ := strings.Cut(line, "=")
	switch name {
	case "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_DISABLE_REQUIRE", "NVIDIA_IMEX_CHANNELS",
		"NVIDIA_GDS", "NVIDIA_MOFED", "NVIDIA_GDRCOPY", "NVIDIA_NVSWITCH", "NVIDIA_RUNTIME_SET_MEMLOCK":
		return true
	}
	for _, prefix := range []string{"NVIDIA_REQUIRE_", "NVIDIA_MIG_", "NVIDIA_GPU_MEMORY_", "NVIDIA_CTK_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
