// Package pulling tracks the progress of images that containerd pulls from their
// registries.
package pulling

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"

	"github.com/berth-scheduler/berth/cluster"
)

// maxLayers bounds what is remembered of an image: no builder creates that many.
const maxLayers = 1024

// Image is what is known of an image being pulled. It is safe for concurrent use; a nil one
// ignores everything.
type Image struct {
	mu     sync.Mutex
	layers map[string]*layer // by digest
}

type layer struct {
	bytes int64
	here  bool
}

// descriptor is the part that is read of an image specification's descriptor.
type descriptor struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int64  `json:"size"`
}

// Watch wraps a handler to tell p what an image consists of and what of it is here.
func (p *Image) Watch(h images.Handler) images.Handler {
	if p == nil {
		return h
	}
	return images.HandlerFunc(watched(h.Handle, p.saw))
}

// watched wraps a handler of descriptors to call saw for each one that it is done with,
// with that one and those that it names. They are converted through JSON, their own format:
// the type's module is needed nowhere else here.
func watched[D any](handle func(context.Context, D) ([]D, error), saw func(descriptor, []descriptor)) func(context.Context, D) ([]D, error) {
	return func(ctx context.Context, d D) ([]D, error) {
		children, err := handle(ctx, d)
		if err != nil {
			return children, err
		}
		text, err := json.Marshal(append([]D{d}, children...))
		var all []descriptor
		if err == nil {
			err = json.Unmarshal(text, &all)
		}
		if err == nil {
			saw(all[0], all[1:])
		}
		return children, nil // watching never fails the pull
	}
}

// saw records that d is here, and what it names.
func (p *Image) saw(d descriptor, children []descriptor) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.layers[d.Digest]; l != nil {
		l.here = true
	}
	for _, c := range children {
		if images.IsLayerType(c.MediaType) && p.layers[c.Digest] == nil && len(p.layers) < maxLayers {
			if p.layers == nil {
				p.layers = map[string]*layer{}
			}
			p.layers[c.Digest] = &layer{bytes: min(max(c.Size, 0), cluster.MaxPullBytes)}
		}
	}
}

// State sums up the progress, including active downloads.
func (p *Image) State(under []content.Status) cluster.Pull {
	p.mu.Lock()
	defer p.mu.Unlock()
	var sum cluster.Pull
	for name, l := range p.layers {
		sum.Layers, sum.Bytes = sum.Layers+1, sum.Bytes+l.bytes
		if l.here {
			sum.Done, sum.Got = sum.Done+1, sum.Got+l.bytes
		} else if i := slices.IndexFunc(under, func(s content.Status) bool { return s.Ref == "layer-"+name }); i >= 0 {
			sum.Got += min(max(under[i].Offset, 0), l.bytes)
		}
	}
	return sum
}

// Images are the images being pulled, by the attempts that need them. The zero value is
// ready to use, and safe for concurrent use.
type Images struct {
	mu sync.Mutex
	by map[cluster.AttemptID]*Image
}

// Begin records that an image is pulled for an attempt, until end is called.
func (p *Images) Begin(id cluster.AttemptID) (one *Image, end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.by == nil {
		p.by = map[cluster.AttemptID]*Image{}
	}
	one = &Image{}
	p.by[id] = one
	return one, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.by, id)
	}
}

// Now returns the images being pulled.
func (p *Images) Now() map[cluster.AttemptID]*Image {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.by)
}
