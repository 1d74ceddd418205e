package cards

import (
	"context"
	"slices"

	"github.com/berth-scheduler/berth/agent/gpu"
)

// ours returns the GPUs that Berth may use, and remembers the others.
func (nc *Cards) ours(ctx context.Context, cards []gpu.Card) []gpu.Card {
	only := nc.cfg.Only
	if len(only) == 0 {
		return cards
	}
	foreign := map[string]struct{}{}
	var out []gpu.Card
	for i := range cards {
		if c := &cards[i]; only.Holds(c) {
			out = append(out, *c)
		} else {
			foreign[c.UUID] = struct{}{}
			for _, in := range c.Instances {
				foreign[in.UUID] = struct{}{}
			}
		}
	}
	for _, item := range only {
		if !slices.ContainsFunc(cards, func(c gpu.Card) bool { return gpu.Names(item, &c) }) {
			nc.log.WarnContext(ctx, "a card that is to be offered is not there", "gpu", item, "key", "gpus.only")
		}
	}
	nc.mu.Lock()
	nc.foreign = foreign
	nc.mu.Unlock()
	return out
}

// oursUsed leaves out the usage of GPUs that Berth may not use. Until they are known, that is
// all.
func (nc *Cards) oursUsed(usage []gpu.Usage) []gpu.Usage {
	if len(nc.cfg.Only) == 0 {
		return usage
	}
	nc.mu.Lock()
	foreign := nc.foreign
	nc.mu.Unlock()
	if foreign == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(usage), func(u gpu.Usage) bool {
		_, not := foreign[u.UUID]
		return not
	})
}
