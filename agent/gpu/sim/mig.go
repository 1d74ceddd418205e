package sim

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/agent/gpu"
)

// slices of memory, and sevenths of the multiprocessors, that an A100, an H100 and an H200
// have (NVIDIA, Multi-Instance GPU User Guide, supported profiles).
const (
	memorySlices  = 8
	computeSlices = 7
)

// profiles returns the sizes of instance that a type can have, empty for one without MIG.
func (m *model) profiles() []gpu.Profile {
	if !slices.ContainsFunc([]string{"A100-", "H100-", "H200"}, func(s string) bool { return strings.HasPrefix(m.typ, s) }) {
		return nil
	}
	out := []gpu.Profile{
		{Compute: 1, Size: 1, Starts: []int{0, 1, 2, 3, 4, 5, 6}},
		{Compute: 1, Size: 2, Starts: []int{0, 2, 4, 6}},
		{Compute: 2, Size: 2, Starts: []int{0, 2, 4}},
		{Compute: 3, Size: 4, Starts: []int{0, 4}},
		{Compute: 4, Size: 4, Starts: []int{0}},
		{Compute: 7, Size: 8, Starts: []int{0}},
	}
	for i := range out {
		p := &out[i]
		p.MemMiB = (m.memMiB - m.reservedMiB) * int64(p.Size) / memorySlices
		gib := (m.memMiB*int64(p.Size)/memorySlices + 512) >> 10
		p.Name = fmt.Sprintf("%dg.%dgb", p.Compute, gib)
	}
	return out
}

// Cut implements gpu.Cutter. What a GPU is cut into outlives the agent, as on a real one
// until the machine boots.
func (p *Provider) Cut(_ context.Context, cut gpu.Cut) error {
	if err := cut.Check(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settle()
	c := p.bank.card(cut.UUID)
	if c == nil || c.info.MIG != gpu.ModeOn {
		return fmt.Errorf("%w: %s is no GPU in MIG mode", gpu.ErrUnknownCard, cut.UUID)
	}
	pieces, err := p.bank.cut(c, cut)
	if err != nil {
		return err
	}
	if err := p.keep(cut.UUID, func(s *setting) { s.Cut = pieces }); err != nil {
		return err
	}
	p.bank.cutAnew(c, pieces)
	return nil
}

// cut returns what c is cut into afterwards.
func (b *bank) cut(c *card, cut gpu.Cut) ([]gpu.Piece, error) {
	var pieces []gpu.Piece
	dropped := 0
	for _, in := range b.instances(c) {
		switch {
		case !slices.Contains(cut.Drop, in.info.UUID):
			pieces = append(pieces, in.piece)
			continue
		case len(in.tallies) > 0:
			return nil, fmt.Errorf("instance %s is in use by %s", in.info.UUID, in.tallies[0].grant.Attempt)
		}
		dropped++
	}
	if dropped != len(cut.Drop) {
		return nil, fmt.Errorf("%w: %d of %d instances of %s", gpu.ErrUnknownCard, len(cut.Drop)-dropped, len(cut.Drop), cut.UUID)
	}
	var used [memorySlices]bool
	for _, piece := range append(pieces, cut.Make...) {
		p := c.info.Profile(piece.Profile)
		if p == nil || !slices.Contains(p.Starts, piece.Start) {
			return nil, fmt.Errorf("%w: no instance of profile %q begins at slice %d", gpu.ErrUnknownCard, piece.Profile, piece.Start)
		}
		for i := piece.Start; i < piece.Start+p.Size; i++ {
			if used[i] {
				return nil, errors.New("insufficient resources: two instances would share memory")
			}
			used[i] = true
		}
	}
	return append(pieces, cut.Make...), nil
}

// instances returns the instances of a GPU.
func (b *bank) instances(c *card) []*card {
	var out []*card
	for _, in := range b.cards {
		if in.of == c {
			out = append(out, in)
		}
	}
	return out
}

// cutAnew gives a GPU the instances of pieces: those that it has stay as they are. A GPU that
// was never cut is one instance.
func (b *bank) cutAnew(c *card, pieces []gpu.Piece) {
	if pieces == nil {
		pieces = []gpu.Piece{{Profile: c.info.Profiles[len(c.info.Profiles)-1].Name}}
	}
	b.cards = slices.DeleteFunc(b.cards, func(in *card) bool { return in.of == c && !slices.Contains(pieces, in.piece) })
	for _, piece := range pieces {
		if !slices.ContainsFunc(b.cards, func(in *card) bool { return in.of == c && in.piece == piece }) {
			b.cards = append(b.cards, instance(c, piece))
		}
	}
}

func instance(c *card, piece gpu.Piece) *card {
	p, m := c.info.Profile(piece.Profile), c.model
	m.idleW, m.limitW = m.idleW*int64(p.Compute)/computeSlices, m.limitW*int64(p.Compute)/computeSlices
	h := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d", c.info.UUID, piece.Profile, piece.Start))
	info := c.info
	info.UUID = fmt.Sprintf("MIG-51700000-%x-%x-%x-%x", h[0:2], h[2:4], h[4:6], h[6:12])
	info.MemMiB, info.MIG, info.Profiles = p.MemMiB, gpu.ModeUnknown, nil
	return &card{info: info, of: c, piece: piece, part: fullLoad * int64(p.Compute) / computeSlices, model: m, capacity: p.MemMiB << 20, context: c.context}
}

// withInstances describes a GPU with its instances.
func (b *bank) withInstances(c *card) gpu.Card {
	info := c.info
	for _, in := range b.instances(c) {
		info.Instances = append(info.Instances, gpu.Instance{
			UUID: in.info.UUID, Profile: in.piece.Profile, MemMiB: in.info.MemMiB, GI: gpu.Unknown, CI: gpu.Unknown,
			Start: in.piece.Start, Size: c.info.Profile(in.piece.Profile).Size,
		})
	}
	slices.SortFunc(info.Instances, func(a, b gpu.Instance) int { return strings.Compare(a.UUID, b.UUID) })
	return info
}
