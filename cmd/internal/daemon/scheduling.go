package daemon

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/cmd/internal/config"
	"github.com/berth-scheduler/berth/coordinator"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/policies"
)

// schedulingOf makes the policies of a configuration.
func schedulingOf(cfg *config.Scheduling) (*coordinator.Scheduling, error) {
	base := scheduler.Default()
	base.MaxShares = cfg.MaxShares
	base.MaxSlowdownMilli = int64(math.Round(1000 * cfg.MaxSlowdown))
	prices, err := cfg.PerHourMilli()
	if err != nil {
		return nil, fmt.Errorf("scheduling.prices: %w", err)
	}
	if len(prices) > 0 {
		base.Prices = &scheduler.Prices{PerHourMilli: prices}
	}
	s := &coordinator.Scheduling{Interval: cfg.Interval, Partitions: map[string]coordinator.Chosen{}}
	if s.Chosen, err = chosen(cfg.Policy, base); err != nil {
		return nil, fmt.Errorf("scheduling.policy: %w", err)
	}
	of, wrong := cfg.PolicyOf()
	for _, i := range slices.Sorted(maps.Keys(wrong)) {
		return nil, fmt.Errorf("scheduling.policies[%d]: %s", i, wrong[i])
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if s.Partitions[name], err = chosen(of[name], base); err != nil {
			return nil, fmt.Errorf("scheduling.policies: %s: %w", name, err)
		}
	}
	return s, nil
}

func chosen(name string, base scheduler.Policy) (c coordinator.Chosen, err error) {
	c.Policy = base
	c.Planner, err = plannerOf(name, &c.Policy)
	return c, err
}

// plannerOf makes the policy of a name: nil for the scheduler's own passes,
// of which it sets the mode. Whatever the order, nobody waits for ever.
func plannerOf(name string, base *scheduler.Policy) (policies.Policy, error) {
	if place, order, _ := strings.Cut(name, "+"); place == string(scheduler.ModeSlot) {
		base.Mode = scheduler.ModeSlot
		if order == "" {
			return nil, nil
		}
	}
	if name == string(scheduler.ModeFFD) {
		return nil, nil
	}
	return policies.New(name, policies.Options{Base: *base, Age: base.FIFOAge, HoldAge: base.FIFOAge})
}
