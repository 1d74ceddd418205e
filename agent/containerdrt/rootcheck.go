package containerdrt

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/mount"

	"github.com/berth-scheduler/berth/agent/launch"
)

// ourPlaces are where runc mounts into an image's root. Each must be a directory or absent:
// several of runc's vulnerabilities began with a link in its way (CVE-2019-19921,
// CVE-2021-30465, CVE-2023-27561), and none of them can be reached through a root without
// such a link.
var ourPlaces = []string{"proc", "sys", "dev", "dev/pts", "dev/shm", "dev/mqueue", "etc", "run", "tmp", ".berth", ".berth/lib", ".berth/bin"}

// checkPlaces rejects a root that has anything else there.
func checkPlaces(root string) error {
	for _, name := range ourPlaces {
		st, err := os.Lstat(filepath.Join(root, name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return fmt.Errorf("look at /%s: %w", name, err)
		case !st.IsDir():
			return imageError(fmt.Errorf("/%s of the image is %s, where containers need a directory; build the image without it", name, kindOf(st.Mode())))
		}
	}
	return nil
}

func kindOf(m fs.FileMode) string {
	switch {
	case m&fs.ModeSymlink != 0:
		return "a symbolic link"
	case m.IsRegular():
		return "a file"
	default:
		return "neither a file nor a directory"
	}
}

// imageLook caches what was seen of images by digest, once for each: what a digest names
// never changes.
type imageLook struct {
	client *containerd.Client
	cfg    *Config
	sound  sync.Map // whose roots were checked
	envs   sync.Map // their environments
}

// env is readImage, once for each image.
func (k *imageLook) env(ctx context.Context, img containerd.Image) ([]string, error) {
	digest := img.Target().Digest
	if env, ok := k.envs.Load(digest); ok {
		return env.([]string), nil
	}
	env, err := readImage(ctx, img)
	if err == nil {
		k.envs.Store(digest, env)
	}
	return env, err
}

// root checks the root of an image once per digest, and the working directory of l each
// time.
func (k *imageLook) root(ctx context.Context, img containerd.Image, l *launch.Launch, b *binds) error {
	digest := img.Target().Digest.String()
	if _, seen := k.sound.Load(digest); !seen {
		if err := k.into(ctx, img, func(root string) error { return checkPlaces(root) }); err != nil {
			return err
		}
		k.sound.Store(digest, struct{}{})
	}
	return checkWorkDir(l, b, func(check func(root *os.File) error) error {
		return k.into(ctx, img, func(root string) error {
			f, err := os.Open(root)
			if err != nil {
				return err
			}
			defer f.Close()
			return check(f)
		})
	})
}

// into mounts the root of an unpacked image read-only while f runs.
func (k *imageLook) into(ctx context.Context, img containerd.Image, f func(root string) error) error {
	ctx, done, err := k.client.WithLease(ctx, leases.WithRandomID(), leases.WithExpiration(callDeadline))
	if err != nil {
		return fmt.Errorf("look into image: %w", err)
	}
	defer func() { _ = done(context.WithoutCancel(ctx)) }() // otherwise it expires
	layers, err := img.RootFS(ctx)
	if err != nil {
		return fmt.Errorf("look into image: %w", err)
	}
	ids := make([]string, len(layers))
	for i, d := range layers {
		ids[i] = d.String()
	}
	top := chainID(ids)
	sn := k.client.SnapshotService("")
	key := fmt.Sprintf("look-%s-%d", top, time.Now().UnixNano())
	mounts, err := sn.View(ctx, key, top)
	if err != nil {
		return fmt.Errorf("look into image: %w", err)
	}
	err = mount.WithReadonlyTempMount(ctx, mounts, f)
	if rerr := sn.Remove(context.WithoutCancel(ctx), key); rerr != nil {
		k.cfg.Log.Warn("cannot remove a view of an image; it goes with its lease", "err", rerr)
	}
	return err
}

// chainID names the snapshot of an image's layers, given lowest first: for one layer it is
// its digest, and further layers are chained to it as the OCI image specification says
// (config.md, "Layer ChainID").
func chainID(layers []string) string {
	id := ""
	for i, layer := range layers {
		if i == 0 {
			id = layer
			continue
		}
		id = fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(id+" "+layer)))
	}
	return id
}
