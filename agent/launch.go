package agent

import (
	"context"

	"github.com/berth-scheduler/berth/agent/gpu/caps"
	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/launcher"
	"github.com/berth-scheduler/berth/agent/runtime"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// runtimeFor returns the runtime of an assignment, which for an image is the one that runs
// images; nil when there is none.
func (a *Agent) runtimeFor(as *nodev1.Assignment) runtime.Runtime {
	if as.GetImage() != "" {
		return a.cfg.Images
	}
	return a.cfg.Host
}

// socketDir is a provider that jobs reach through a socket in a directory.
type socketDir interface{ SocketDir() string }

// launch resolves an assignment into what a runtime needs.
func (a *Agent) launch(ctx context.Context, as *nodev1.Assignment) (*launch.Launch, error) {
	user, err := a.launcher.User(as)
	if err != nil {
		return nil, err
	}
	cards, err := a.give(ctx, as)
	if err != nil {
		return nil, err
	}
	return a.launcher.Launch(as, user, cards)
}

// give grants an attempt its shares and prepares their enforcement.
func (a *Agent) give(ctx context.Context, as *nodev1.Assignment) (*launcher.Cards, error) {
	env, err := a.cards.Admit(ctx, as)
	if err != nil {
		return nil, err
	}
	c := &launcher.Cards{Env: env}
	if c.Devices, err = a.cards.Names(as); err != nil {
		return nil, err
	}
	if as.Image != "" {
		if m, ok := a.cfg.GPUs.(socketDir); ok && len(as.Gpus) > 0 {
			c.Mounts = append(c.Mounts, launch.Mount{Source: m.SocketDir(), Target: m.SocketDir(), Own: true})
		}
		if s := a.cards.HeldBy(as, caps.MPS); s != nil && a.cfg.MemCaps.Daemons != nil && len(as.Gpus) == 1 {
			dir := a.cfg.MemCaps.Daemons.PipeDir(s.Uuid)
			c.Mounts = append(c.Mounts, launch.Mount{Source: dir, Target: dir, Own: true})
		}
	}
	if c.Caps, err = a.shares.join(ctx, as); err != nil {
		return nil, err
	}
	if s := a.cards.HeldBy(as, caps.Dmem); s != nil {
		c.Caps = append(c.Caps, caps.DmemEnv(s.MemMib)...)
	}
	for _, s := range as.GetGpus() {
		if !s.Exclusive && (c.ShareMiB == 0 || s.MemMib < c.ShareMiB) {
			c.ShareMiB, c.TotalMiB = s.MemMib, a.cards.Usable(s.Uuid)
		}
	}
	return c, nil
}
