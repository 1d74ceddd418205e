package containerdrt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/defaults"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/cluster"
)

// usage is how full containerd's disk is.
type usage struct {
	path        string // "" when containerd does not report it
	used, total uint64 // bytes
}

func (u usage) percent() int {
	if u.total == 0 {
		return 0
	}
	return int(u.used * 100 / u.total)
}

// measure asks containerd where it keeps container roots, and the kernel how full that file
// system is for containerd, which is root.
func (s *Images) measure(ctx context.Context) (usage, error) {
	resp, err := s.client.IntrospectionService().Plugins(ctx, "type==io.containerd.snapshotter.v1,id=="+defaults.DefaultSnapshotter)
	if err != nil {
		return usage{}, fmt.Errorf("ask containerd for its disk: %w", err)
	}
	for _, p := range resp.Plugins {
		path := p.Exports["root"]
		if path == "" {
			continue
		}
		var st unix.Statfs_t
		if err := unix.Statfs(path, &st); err != nil {
			return usage{}, fmt.Errorf("containerd's disk: %w", err)
		}
		size := uint64(st.Bsize)
		return usage{path: path, used: (st.Blocks - st.Bfree) * size, total: st.Blocks * size}, nil
	}
	return usage{}, nil
}

// makeRoom evicts images while the disk is above HighPercent, and fails if it is still
// above FullPercent.
func (s *Images) makeRoom(ctx context.Context) error {
	u, err := s.disk(ctx)
	if err != nil {
		return err
	}
	if u.percent() < s.cfg.HighPercent {
		return nil
	}
	gone, err := s.evict(ctx, restTime, func() (bool, error) {
		u, err = s.disk(ctx)
		return u.percent() >= s.cfg.HighPercent, err
	})
	for _, img := range gone {
		s.cfg.Log.Info("evicted an image", "image", img.Name, "bytes", img.Bytes)
	}
	if err != nil {
		return err
	}
	if u.percent() >= s.cfg.FullPercent {
		return fmt.Errorf("no room for images: %s is %d %% full and %d %% is the limit, with every image that is not in use evicted; make room there",
			u.path, u.percent(), s.cfg.FullPercent)
	}
	return nil
}

// Prune deletes the images that no container uses and that have been unused for the given
// time, and returns them, longest unused first. It keeps what running containers need.
func (s *Images) Prune(ctx context.Context, unusedFor time.Duration) ([]Image, error) {
	return s.evict(s.with(ctx), unusedFor, func() (bool, error) { return true, nil })
}

// evict deletes unused images while more reports true.
func (s *Images) evict(ctx context.Context, unusedFor time.Duration, more func() (bool, error)) ([]Image, error) {
	all, err := s.List(ctx)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(all, func(a, b Image) int { return a.Used.Compare(b.Used) })
	var gone []Image
	for _, img := range all {
		if img.Containers > 0 || s.now().Sub(img.Used) < unusedFor {
			continue
		}
		if ok, err := more(); err != nil || !ok {
			return gone, err
		}
		deleted, err := s.remove(ctx, img.Name)
		if err != nil {
			return gone, err
		}
		if deleted {
			gone = append(gone, img)
		}
	}
	_, err = more() // shows the caller the effect of the last deletion
	return gone, err
}

// remove deletes an image unless it is about to be used, and waits until containerd has
// removed what only that image needed.
func (s *Images) remove(ctx context.Context, name string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[name] > 0 {
		return false, nil
	}
	err := s.client.ImageService().Delete(ctx, name, images.SynchronousDelete())
	if err != nil && !errdefs.IsNotFound(err) {
		return false, fmt.Errorf("delete image %s: %w", name, err)
	}
	return err == nil, nil
}

// noSpace reports whether a disk is full. containerd reports it as text.
func noSpace(err error) bool {
	return err != nil && (errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) ||
		strings.Contains(err.Error(), unix.ENOSPC.Error()) || strings.Contains(err.Error(), unix.EDQUOT.Error()))
}

// near returns the names of local images that may have been meant.
func (s *Images) near(ctx context.Context, ref string) string {
	all, err := s.client.ListImages(ctx)
	if err != nil || len(all) == 0 {
		return ""
	}
	have := make([]string, len(all))
	for i, img := range all {
		have[i] = img.Name()
	}
	names := nearest(ref, have)
	if len(names) == 0 {
		return fmt.Sprintf("; none of the %d images on this node has a similar name", len(all))
	}
	return "; on this node are " + strings.Join(names, ", ")
}

const nearNames = 3

// nearest returns the names of the same repository or image, and those that differ in few
// letters, nearest first.
func nearest(ref string, have []string) []string {
	type hit struct {
		name string
		far  int
	}
	var hits []hit
	for _, name := range have {
		d := cluster.EditDistance(ref, name)
		if baseName(ref) == baseName(name) || d <= max(2, len(ref)/5) {
			hits = append(hits, hit{name, d})
		}
	}
	slices.SortFunc(hits, func(a, b hit) int {
		if a.far != b.far {
			return a.far - b.far
		}
		return strings.Compare(a.name, b.name)
	})
	var out []string
	for _, h := range hits[:min(nearNames, len(hits))] {
		out = append(out, h.name)
	}
	return out
}

// baseName returns an image's name without registry, path, tag and digest.
func baseName(ref string) string {
	ref, _, _ = strings.Cut(ref, "@")
	ref = ref[strings.LastIndex(ref, "/")+1:]
	ref, _, _ = strings.Cut(ref, ":")
	return ref
}
