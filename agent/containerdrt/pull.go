package containerdrt

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	goruntime "runtime"
	"strings"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	remotes "github.com/containerd/containerd/v2/core/remotes/errors"
	"github.com/containerd/errdefs"

	"github.com/berth-scheduler/berth/agent/containerdrt/pulling"
	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
)

const (
	pullTimeout = 15 * time.Minute
	pullTries   = 3
	pullPause   = 2 * time.Second
	pullsAtOnce = 2
)

func imageError(err error) error {
	return &launch.Error{Code: 125, Reason: "IMAGE", Err: err}
}

// Pull pulls an image from its registry, even if one of that name is here already, since
// its tag may have moved. Errors that no retry fixes are *launch.Error.
func (s *Images) Pull(ctx context.Context, ref string) (Image, error) {
	if err := checkName(ref); err != nil {
		return Image{}, err
	}
	ctx = s.with(ctx)
	img, err := s.pull(ctx, ref, nil)
	if err != nil {
		return Image{}, err
	}
	if _, err := readImage(ctx, img); err != nil {
		return Image{}, err
	}
	s.hold(ctx, img)()
	return s.describe(ctx, img), nil
}

// find finds an image here, or pulls it for an attempt. The image is not evicted before
// release is called.
func (s *Images) find(ctx context.Context, ref string, id cluster.AttemptID) (img containerd.Image, release func(), err error) {
	if err := checkName(ref); err != nil {
		return nil, nil, err
	}
	img, err = s.here(ctx, ref)
	if errdefs.IsNotFound(err) {
		p, end := s.fetched.Begin(id)
		defer end()
		if img, err = s.pull(ctx, ref, p); err != nil {
			return nil, nil, err
		}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("find image: %w", err) // a problem of containerd, not of the image
	}
	release = s.hold(ctx, img)
	unpacked, err := img.IsUnpacked(ctx, "")
	if err == nil && !unpacked {
		err = img.Unpack(ctx, "")
	}
	if err != nil {
		release()
		return nil, nil, unpackError(ctx, ref, err)
	}
	return img, release, nil
}

func unpackError(ctx context.Context, ref string, err error) error {
	if ours(ctx, err) || noSpace(err) {
		return fmt.Errorf("unpack image %s: %w", ref, err)
	}
	return imageError(fmt.Errorf("unpack image %s: %w", ref, err))
}

// here finds an image by its name, or one with the name's digest whatever its own name: an
// archive may have brought it.
func (s *Images) here(ctx context.Context, ref string) (containerd.Image, error) {
	img, err := s.client.GetImage(ctx, ref)
	_, digest, pinned := strings.Cut(ref, "@")
	if !errdefs.IsNotFound(err) || !pinned {
		return img, err
	}
	same, lerr := s.client.ListImages(ctx, "target.digest=="+digest)
	if lerr != nil || len(same) == 0 {
		return nil, errors.Join(err, lerr)
	}
	return same[0], nil
}

// runsOn lists what a node of an architecture can run besides its own.
var runsOn = map[string]string{"amd64": "386", "arm64": "arm"}

// readImage returns the environment of an image. It rejects an image for another
// architecture, which a registry may serve and an archive contain: its programs would exit
// with a code that looks like their own.
func readImage(ctx context.Context, img containerd.Image) (env []string, err error) {
	spec, err := img.Spec(ctx)
	if ours(ctx, err) {
		return nil, fmt.Errorf("read image: %w", err)
	}
	if err != nil {
		return nil, imageError(fmt.Errorf("read image %s: %w", img.Name(), err))
	}
	os, arch := spec.OS, spec.Architecture
	if os != "" && os != "linux" || arch != "" && arch != goruntime.GOARCH && arch != runsOn[goruntime.GOARCH] {
		return nil, imageError(fmt.Errorf("image %s is built for %s/%s; this node runs linux/%s", img.Name(), os, arch, goruntime.GOARCH))
	}
	return spec.Config.Env, nil
}

// pull pulls an image from its registry, with a limit on parallel pulls, and retries when
// the registry's failure may be transient. It reports progress to p, which may be nil.
func (s *Images) pull(ctx context.Context, ref string, p *pulling.Image) (got containerd.Image, err error) {
	if err := s.mayFetch(ref); err != nil {
		return nil, err
	}
	select {
	case s.pulls <- struct{}{}:
		defer func() { <-s.pulls }()
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for other pulls: %w", ctx.Err())
	}
	pctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	pctx, done, err := s.lease(pctx)
	if err != nil {
		return nil, err
	}
	defer func() { done(err) }()
	for try, pause := 1, s.cfg.PullPause; ; try, pause = try+1, 2*pause {
		if err := s.makeRoom(pctx); err != nil {
			return nil, err
		}
		img, err := s.client.Pull(pctx, ref, containerd.WithPullUnpack, containerd.WithImageHandlerWrapper(p.Watch))
		switch {
		case err == nil:
			return img, nil
		case ours(ctx, err):
			return nil, fmt.Errorf("pull image: %w", err)
		case noSpace(err):
			return nil, s.full(pctx, ref, err)
		case final(err):
			return nil, imageError(fmt.Errorf(
				"pull %s: %w; check its name, that this node may read it, and that it is built for linux/%s%s", ref, err, goruntime.GOARCH, s.near(ctx, ref)))
		case try == pullTries || pctx.Err() != nil:
			return nil, imageError(fmt.Errorf("pull %s: %w (%d tries); its registry may be back later%s", ref, err, try, s.near(ctx, ref)))
		}
		s.cfg.Log.Warn("cannot pull an image; trying again", "image", ref, "err", err)
		wait.Sleep(pctx, pause/2+rand.N(pause)) // #nosec G404 -- many nodes may ask at once
	}
}

// full evicts what it can for an image that found no space, so that the next try, which is
// the agent's, may find some.
func (s *Images) full(ctx context.Context, ref string, cause error) error {
	gone, err := s.evict(ctx, restTime, func() (bool, error) { return true, nil })
	u, derr := s.disk(ctx)
	return errors.Join(fmt.Errorf("pull %s: %w; the disk of %s has no room for it, and %d unused images were evicted", ref, cause, u.path, len(gone)), err, derr)
}

// ours reports whether an error is not the fault of the image or its registry: the caller
// gave up, or containerd went away.
func ours(ctx context.Context, err error) bool {
	return err != nil && (ctx.Err() != nil || errdefs.IsUnavailable(err))
}

// final reports whether a registry's answer would be the same next time.
func final(err error) bool {
	if status, ok := errors.AsType[remotes.ErrUnexpectedStatus](err); ok {
		switch status.StatusCode {
		case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
			return false
		}
		return status.StatusCode < http.StatusInternalServerError
	}
	return errors.Is(err, docker.ErrInvalidAuthorization) || errdefs.IsNotFound(err) || errdefs.IsInvalidArgument(err) ||
		errdefs.IsPermissionDenied(err) || errdefs.IsUnauthorized(err)
}
