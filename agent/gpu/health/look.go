package health

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/cluster/wait"
)

// runLooks checks the bus and the GPUs' own counters from time to time.
func (m *Monitor) runLooks(ctx context.Context) error {
	for {
		m.lookAtBus(ctx)
		m.lookAtMemory(ctx)
		m.flush()
		if !wait.Sleep(ctx, m.cfg.Every) {
			return ctx.Err()
		}
	}
}

// lookAtBus compares the PCI bus with its previous state and with the GPUs that the driver has.
func (m *Monitor) lookAtBus(ctx context.Context) {
	if m.cfg.PCI == "" {
		return
	}
	on, err := PCICards(m.cfg.PCI)
	if err != nil {
		m.log.Warn("cannot look at the PCI bus", "err", err)
		return
	}
	driver, complete := m.learnCards(ctx)
	gone, without := m.compare(on, driver, complete)
	why := ""
	if len(without) > 0 {
		why = fmt.Sprintf("the PCI bus has %d GPUs and the driver %d: it does not have %s", len(on), len(driver), strings.Join(without, ", "))
	}
	m.cfg.SetProblem(why)
	for _, f := range gone {
		m.fault(f, sourceBus)
	}
}

// compare returns the GPUs that have left the bus, or the driver, since the previous looks, and
// the locations of those that the driver does not have. A GPU that the driver has but that was
// never on the bus is not covered by this directory.
func (m *Monitor) compare(on []string, driver map[string]string, complete bool) (gone []Fault, without []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	was := m.onBus
	m.onBus = map[string]bool{}
	lost := func(key, text string) {
		if uuid := m.cards[key]; uuid != "" {
			gone = append(gone, Fault{UUID: uuid, Xid: Xid{Action: End, Text: text, Known: true}, Lost: true, Detail: key})
		}
	}
	for key := range was {
		if !slices.Contains(on, key) {
			lost(key, "the GPU is gone from the PCI bus")
		}
	}
	for _, key := range on {
		m.onBus[key] = true
		if !complete || driver[key] != "" {
			delete(m.missing, key)
			continue
		}
		without = append(without, key)
		// Seen once, it may be a driver that is just being loaded.
		if m.missing[key]++; m.missing[key] == 2 {
			lost(key, "the driver lost the GPU")
		}
	}
	slices.SortFunc(gone, func(a, b Fault) int { return strings.Compare(a.UUID, b.UUID) })
	return gone, without
}

// lookAtMemory reads the GPUs' own counters: a GPU that must be reset takes no new jobs, and
// those on it end in their own time.
func (m *Monitor) lookAtMemory(ctx context.Context) {
	src, ok := m.cfg.GPUs.(gpu.HealthReader)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askDeadline)
	defer cancel()
	all, err := src.Health(ctx)
	if err != nil {
		m.log.Debug("cannot read the condition of every GPU", "err", err)
	}
	for _, h := range all {
		why := ""
		switch {
		case h.RemapFailed:
			why = "a bad row of its memory cannot be replaced: replace the card"
		case h.RemapPending:
			why = "bad rows of its memory are to be replaced: reset it"
		case h.RetirePending:
			why = "bad pages of its memory are to be given up: reset it"
		}
		if why == "" {
			m.cfg.SetCard(h.UUID, whoMemory, Sound, "")
			continue
		}
		m.cfg.SetCard(h.UUID, whoMemory, Failing, why)
	}
}
