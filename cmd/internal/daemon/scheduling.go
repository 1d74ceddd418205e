package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/config"
	"github.com/berth-scheduler/berth/coordinator/lead"
	"github.com/berth-scheduler/berth/coordinator/program"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/elastic"
	"github.com/berth-scheduler/berth/scheduler/policies"
	"github.com/berth-scheduler/berth/scheduler/policies/order"
	powerrule "github.com/berth-scheduler/berth/scheduler/power"
	"github.com/berth-scheduler/berth/scheduler/site"
)

// schedulingOf builds the policies of a configuration.
func schedulingOf(cfg *config.Scheduling) (*lead.Scheduling, error) {
	base := scheduler.Default()
	base.MaxShares = cfg.MaxShares
	base.FairMilli = int64(math.Round(1000 * cfg.Fairshare))
	base.Trading = cfg.Trading
	base.YieldAfter = cfg.PreemptWait
	base.MaxSlowdownMilli = int64(math.Round(1000 * cfg.MaxSlowdown))
	base.OvercommitMilli = int64(math.Round(1000 * cfg.Overcommit))
	prices, err := cfg.PerHourMilli()
	if err != nil {
		return nil, fmt.Errorf("scheduling.prices: %w", err)
	}
	if len(prices) > 0 {
		base.Prices = &scheduler.Prices{PerHourMilli: prices}
	}
	limits, err := cfg.LASLimits()
	if err != nil {
		return nil, fmt.Errorf("scheduling.las_queues: %w", err)
	}
	opt := policies.Options{MinRun: cfg.PreemptAfter, LAS: order.LAS{Limits: limits, Promote: order.PromoteAfter}}
	if opt.Tenants, err = cfg.Tenancy(); err != nil {
		return nil, err
	}
	sizes := elastic.Rules{Every: cfg.PreemptAfter, Patience: cfg.PreemptEvery}
	if sizes.Sizing, err = elastic.ParseSizing(cfg.Sizing); err != nil {
		return nil, fmt.Errorf("scheduling.sizing: %w", err)
	}
	s := &lead.Scheduling{Site: site.Site{Partitions: map[string]site.Chosen{}}, Interval: cfg.Interval, PreemptEvery: cfg.PreemptEvery}
	if s.Chosen, err = chosen(cfg.Policy, base, opt, sizes); err != nil {
		return nil, fmt.Errorf("scheduling.policy: %w", err)
	}
	of, wrong := cfg.PolicyOf()
	for _, i := range slices.Sorted(maps.Keys(wrong)) {
		return nil, fmt.Errorf("scheduling.policies[%d]: %s", i, wrong[i])
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if s.Partitions[name], err = chosen(of[name], base, opt, sizes); err != nil {
			return nil, fmt.Errorf("scheduling.policies: %s: %w", name, err)
		}
	}
	return s, nil
}

func chosen(name string, base scheduler.Policy, opt policies.Options, sizes elastic.Rules) (c site.Chosen, err error) {
	c.Policy, c.Elastic = base, sizes
	c.Planner, err = plannerOf(name, &c.Policy, opt)
	return c, err
}

// plannerOf returns the policy of a name: nil for the scheduler's own
// passes, whose mode it sets. opt says how it preempts. Whatever the order,
// no job waits forever.
func plannerOf(name string, base *scheduler.Policy, opt policies.Options) (policies.Policy, error) {
	if place, order, _ := strings.Cut(name, "+"); place == string(scheduler.ModeSlot) {
		base.Mode = scheduler.ModeSlot
		if order == "" && opt.Tenants == nil {
			return nil, nil
		}
	}
	if name == string(scheduler.ModeFFD) && opt.Tenants == nil {
		return nil, nil
	}
	opt.Base, opt.Age, opt.HoldAge = *base, base.FIFOAge, base.FIFOAge
	return policies.New(name, opt)
}

// powerSavingOf returns how idle nodes are powered down, nil if they are not.
func powerSavingOf(s *config.PowerSaving) (*lead.PowerSaving, error) {
	if !s.On() {
		return nil, nil
	}
	exclude, err := s.Excluded()
	if err != nil {
		return nil, err
	}
	var forecast *powerrule.Forecast
	if s.Policy == config.PowerByForecast {
		forecast = &powerrule.Forecast{Every: s.ForecastEvery, Horizon: s.ForecastHorizon, Learn: s.ForecastLearn, SparePercent: s.ForecastSpare}
	}
	return &lead.PowerSaving{
		Rule: powerrule.Rule{
			Idle: s.Idle, ResumeTimeout: s.ResumeTimeout, KeepIdle: s.KeepIdle, AtOnce: s.AtOnce, Exclude: exclude, Partitions: s.Partitions, Forecast: forecast,
		},
		SuspendTimeout: s.SuspendTimeout,
		Suspend:        powerProgram(s.SuspendProgram, s.ProgramTimeout),
		Resume:         powerProgram(s.ResumeProgram, s.ProgramTimeout),
	}, nil
}

// powerProgram returns how a program that is called with a node's name is run.
func powerProgram(path string, timeout time.Duration) func(context.Context, cluster.NodeID) error {
	p := program.Program{Path: path, Timeout: timeout}
	return func(ctx context.Context, node cluster.NodeID) error { return p.Run(ctx, nil, string(node)) }
}

// signalWithin is how long the source of a signal may take.
const signalWithin = 10 * time.Second

// energySignalOf reads the price of power from the site's source; nil if there is none.
func energySignalOf(s *config.EnergySignal) *lead.EnergySignal {
	if s.Source == "" {
		return nil
	}
	read := apart(s.Source, readFile)
	if s.Web() {
		read = func(ctx context.Context) ([]byte, error) { return get(ctx, s.Source) }
	}
	return &lead.EnergySignal{Unit: s.Unit, Every: s.Every, Read: func(ctx context.Context) ([]byte, error) {
		ctx, cancel := context.WithTimeout(ctx, signalWithin)
		defer cancel()
		return read(ctx)
	}}
}

// apart returns what reads a file by read. The reading outlasts its context where the file
// system hangs, so that the leader is not held up; there is one at a time.
func apart(path string, read func(string) ([]byte, error)) func(context.Context) ([]byte, error) {
	type result struct {
		data []byte
		err  error
	}
	turn := make(chan struct{}, 1)
	return func(ctx context.Context) ([]byte, error) {
		select {
		case turn <- struct{}{}:
		default:
			return nil, fmt.Errorf("%s is still being read since earlier: its file system hangs", path)
		}
		done := make(chan result, 1)
		go func() {
			data, err := read(path)
			<-turn
			done <- result{data, err}
		}()
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%s cannot be read: %w", path, ctx.Err())
		case r := <-done:
			return r.data, r.err
		}
	}
}

// readFile reads the signal in a regular file: others may never end.
func readFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // #nosec G304 -- the administrator's
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, errors.Join(err, fmt.Errorf("%s is not a regular file", path))
	}
	return io.ReadAll(io.LimitReader(f, powerrule.MaxSignalBytes+1))
}

// get requests a URL of the site's, and follows no redirects.
func get(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %.100q", url, resp.Status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, powerrule.MaxSignalBytes+1))
}
