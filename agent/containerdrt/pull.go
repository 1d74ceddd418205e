package containerdrt

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	remotes "github.com/containerd/containerd/v2/core/remotes/errors"
	"github.com/containerd/containerd/v2/pkg/reference"
	"github.com/containerd/errdefs"

	"github.com/berth-scheduler/berth/agent"
)

const (
	pullTimeout = 15 * time.Minute
	pullTries   = 3
	pullPause   = 2 * time.Second
	pullsAtOnce = 2
)

func imageError(err error) error {
	return &agent.LaunchError{Code: 125, Reason: "IMAGE", Err: err}
}

// image finds an image here, or pulls it.
func (r *Runtime) image(ctx context.Context, ref string) (containerd.Image, error) {
	if _, err := reference.Parse(ref); err != nil {
		return nil, imageError(fmt.Errorf("image %q: %w; name it as registry/repository:tag", ref, err))
	}
	img, err := r.client.GetImage(ctx, ref)
	if errdefs.IsNotFound(err) {
		if img, err = r.pull(ctx, ref); err != nil {
			return nil, err
		}
	}
	if err != nil {
		return nil, fmt.Errorf("find image: %w", err) // containerd's trouble, not the image's
	}
	unpacked, err := img.IsUnpacked(ctx, "")
	if err == nil && !unpacked {
		err = img.Unpack(ctx, "")
	}
	if ours(ctx, err) {
		return nil, fmt.Errorf("unpack image: %w", err)
	}
	if err != nil {
		return nil, imageError(fmt.Errorf("unpack image %s: %w", ref, err))
	}
	return img, nil
}

// runsOn lists what a node of an architecture runs beside its own.
var runsOn = map[string]string{"amd64": "386", "arm64": "arm"}

// readImage returns the environment of an image. One for another machine, which
// a registry may serve and an archive hold, is refused: its programs would end
// with a code that looks like theirs.
func readImage(ctx context.Context, img containerd.Image) (env []string, err error) {
	spec, err := img.Spec(ctx)
	if ours(ctx, err) {
		return nil, fmt.Errorf("read image: %w", err)
	}
	if err != nil {
		return nil, imageError(fmt.Errorf("read image %s: %w", img.Name(), err))
	}
	os, arch := spec.OS, spec.Architecture
	if os != "" && os != "linux" || arch != "" && arch != runtime.GOARCH && arch != runsOn[runtime.GOARCH] {
		return nil, imageError(fmt.Errorf("image %s is built for %s/%s; this node runs linux/%s", img.Name(), os, arch, runtime.GOARCH))
	}
	return spec.Config.Env, nil
}

// pull fetches an image from its registry, some images at a time, and asks
// again when the registry's trouble may pass.
func (r *Runtime) pull(ctx context.Context, ref string) (containerd.Image, error) {
	select {
	case r.pulls <- struct{}{}:
		defer func() { <-r.pulls }()
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for other pulls: %w", ctx.Err())
	}
	pctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	for try, pause := 1, r.cfg.PullPause; ; try, pause = try+1, 2*pause {
		img, err := r.client.Pull(pctx, ref, containerd.WithPullUnpack)
		switch {
		case err == nil:
			return img, nil
		case ours(ctx, err):
			return nil, fmt.Errorf("pull image: %w", err)
		case final(err):
			return nil, imageError(fmt.Errorf(
				"pull %s: %w; check its name, that this node may read it, and that it is built for linux/%s", ref, err, runtime.GOARCH))
		case try == pullTries || pctx.Err() != nil:
			return nil, imageError(fmt.Errorf("pull %s: %w (%d tries); its registry may be back later", ref, err, try))
		}
		r.cfg.Log.Warn("cannot pull an image; trying again", "image", ref, "err", err)
		select {
		case <-pctx.Done():
		case <-time.After(pause/2 + rand.N(pause)): // many nodes may ask at once
		}
	}
}

// ours tells whether an error is not the image's or its registry's: the caller
// gave up, or containerd went away.
func ours(ctx context.Context, err error) bool {
	return err != nil && (ctx.Err() != nil || errdefs.IsUnavailable(err))
}

// final tells whether a registry's answer will be the same next time.
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
