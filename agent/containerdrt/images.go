package containerdrt

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/reference"
	"github.com/containerd/errdefs"

	"github.com/berth-scheduler/berth/agent/containerdrt/pulling"
)

// ImagesConfig describes the images of a node.
type ImagesConfig struct {
	// Address is containerd's socket, Namespace the namespace of our containers.
	Address, Namespace string
	// PullPause is the wait before a registry is asked again the first time; 0 means 2 s.
	// It doubles each time.
	PullPause time.Duration
	// HighPercent is how full containerd's disk may be before images that no container uses
	// are evicted, longest unused first; 0 means 85. Above FullPercent, where 0 means 90,
	// nothing is pulled.
	HighPercent, FullPercent int
	// Registries are the prefixes that the names of pulled images must have: registries, or
	// paths in them. Empty allows all. Images already on the node are exempt.
	Registries []string
	Log        *slog.Logger
}

const (
	defaultHigh = 85
	defaultFull = 90
	// labelUsed is when an image was last given to a container.
	labelUsed = "berth/used"
	// usedEvery is the precision of labelUsed.
	usedEvery = time.Minute
	// restTime protects an image just used or pulled, by this process or another, whose
	// container may be about to be created.
	restTime = pullTimeout
)

// Images manages the images that containerd has for us. It is safe for concurrent use, and
// for use by several processes.
type Images struct {
	cfg    ImagesConfig
	client *containerd.Client
	pulls  chan struct{} // holds one element for each pull in progress
	now    func() time.Time
	disk   func(ctx context.Context) (usage, error)

	fetched pulling.Images

	mu   sync.Mutex
	held map[string]int // images being given to containers
}

// Image is an image on the node.
type Image struct {
	Name   string // registry/repository:tag, or with @digest
	Digest string // of its manifest or index
	// Bytes is the compressed size of its layers in the content store.
	Bytes int64
	// Used is when it was last given to a container, or else when it was created here.
	Used time.Time
	// Containers is how many containers use it.
	Containers int
}

// ErrNoContainerd says that containerd cannot be reached.
var ErrNoContainerd = errors.New("containerd cannot be reached")

// OpenImages connects to containerd.
func OpenImages(ctx context.Context, cfg ImagesConfig) (*Images, error) {
	// The client would keep trying; a user at a terminal wants to know at once.
	conn, err := new(net.Dialer).DialContext(ctx, "unix", cfg.Address)
	if err == nil {
		err = conn.Close()
	}
	var c *containerd.Client
	if err == nil {
		c, err = containerd.New(cfg.Address, containerd.WithDefaultNamespace(cfg.Namespace), containerd.WithTimeout(dialTimeout))
	}
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		if _, err = c.Version(ctx); err != nil {
			err = errors.Join(err, c.Close())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w at %s: %w; is it running, and are you root?", ErrNoContainerd, cfg.Address, err)
	}
	return newImages(c, cfg), nil
}

func newImages(c *containerd.Client, cfg ImagesConfig) *Images {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.PullPause = cmp.Or(cfg.PullPause, pullPause)
	cfg.HighPercent, cfg.FullPercent = cmp.Or(cfg.HighPercent, defaultHigh), cmp.Or(cfg.FullPercent, defaultFull)
	s := &Images{cfg: cfg, client: c, pulls: make(chan struct{}, pullsAtOnce), now: time.Now, held: map[string]int{}}
	s.disk = s.measure
	return s
}

// Close disconnects from containerd.
func (s *Images) Close() error { return s.client.Close() }

func (s *Images) with(ctx context.Context) context.Context {
	return namespaces.WithNamespace(ctx, s.cfg.Namespace)
}

// maxNames is how many images are reported to the leader: the most recently used.
const maxNames = 256

// names returns the images' names and digests, sorted.
func (s *Images) names(ctx context.Context) ([]string, error) {
	all, err := s.client.ImageService().List(s.with(ctx))
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	slices.SortFunc(all, func(a, b images.Image) int { return lastUsed(b).Compare(lastUsed(a)) })
	var out []string
	for _, img := range all[:min(len(all), maxNames)] {
		out = append(out, img.Name, img.Target.Digest.String())
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// List returns the images, sorted by name.
func (s *Images) List(ctx context.Context) ([]Image, error) {
	ctx = s.with(ctx)
	all, err := s.client.ListImages(ctx)
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	users, err := s.users(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]Image, 0, len(all))
	for _, img := range all {
		one := s.describe(ctx, img)
		one.Containers = users[one.Name]
		out = append(out, one)
	}
	slices.SortFunc(out, func(a, b Image) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// describe leaves Bytes 0 when the content is incomplete.
func (s *Images) describe(ctx context.Context, img containerd.Image) Image {
	one := Image{Name: img.Name(), Digest: img.Target().Digest.String(), Used: lastUsed(img.Metadata())}
	if n, err := img.Size(ctx); err == nil {
		one.Bytes = n
	}
	return one
}

// users counts the containers of each image.
func (s *Images) users(ctx context.Context) (map[string]int, error) {
	cs, err := s.client.Containers(ctx)
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	out := map[string]int{}
	for _, c := range cs {
		info, err := c.Info(ctx, containerd.WithoutRefreshedMetadata)
		if err != nil {
			return nil, fmt.Errorf("list containers: %w", err)
		}
		if info.Image != "" {
			out[info.Image]++
		}
	}
	return out, nil
}

func lastUsed(img images.Image) time.Time {
	if t, err := time.Parse(time.RFC3339, img.Labels[labelUsed]); err == nil {
		return t
	}
	return img.CreatedAt
}

// hold keeps an image from being evicted until release is called, and records that it is
// used.
func (s *Images) hold(ctx context.Context, img containerd.Image) (release func()) {
	name := img.Name()
	s.mu.Lock()
	s.held[name]++
	s.mu.Unlock()
	meta := img.Metadata()
	if now := s.now(); now.Sub(lastUsed(meta)) > usedEvery || meta.Labels[labelUsed] == "" {
		change := images.Image{Name: name, Labels: map[string]string{labelUsed: now.UTC().Format(time.RFC3339)}}
		if _, err := s.client.ImageService().Update(ctx, change, "labels."+labelUsed); err != nil {
			s.cfg.Log.Warn("cannot note that an image is used", "image", name, "err", err)
		}
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.held[name]--; s.held[name] == 0 {
			delete(s.held, name)
		}
	}
}

// Import reads an archive, an OCI image layout or one written by "docker save", gzipped or
// not, and unpacks its images, so that they need no registry. name renames the image of an
// archive that holds one; it may be empty if the archive names its images.
func (s *Images) Import(ctx context.Context, archive io.Reader, name string) (out []Image, err error) {
	if name != "" {
		if err := checkName(name); err != nil {
			return nil, err
		}
	}
	ctx, done, err := s.lease(s.with(ctx))
	if err != nil {
		return nil, err
	}
	defer func() { done(err) }()
	if err := s.makeRoom(ctx); err != nil {
		return nil, err
	}
	plain, err := gunzip(archive)
	if err != nil {
		return nil, err
	}
	found, err := s.client.Import(ctx, plain, containerd.WithSkipDigestRef(func(n string) bool { return n != "" }),
		containerd.WithDigestRef(always(images.Image{}.Target.Digest, name)))
	switch {
	case err != nil && (errors.Is(err, io.ErrUnexpectedEOF) || errdefs.IsFailedPrecondition(err)):
		return nil, fmt.Errorf("import: %w; the archive is damaged or cut short", err)
	case err != nil && noSpace(err):
		return nil, fmt.Errorf("import: %w; free some of containerd's disk, for example by \"berth image prune\"", err)
	case err != nil:
		return nil, fmt.Errorf("import: %w; want an archive of an OCI image layout, or one by \"docker save\", with an image for this machine", err)
	case len(found) == 0:
		return nil, errors.New("import: the archive names no image; name it with --name registry/repository:tag")
	case len(found) > 1 && name != "":
		err = fmt.Errorf("import: the archive holds %d images, which cannot all be called %s; leave --name out", len(found), name)
	case name != "" && found[0].Name != name:
		found[0], err = s.rename(ctx, found[0], name)
	}
	for i := 0; i < len(found) && err == nil; i++ {
		var one Image
		one, err = s.finish(ctx, found[i])
		out = append(out, one)
	}
	if err != nil {
		return nil, errors.Join(err, s.drop(ctx, found))
	}
	return out, nil
}

// finish unpacks an imported image.
func (s *Images) finish(ctx context.Context, meta images.Image) (Image, error) {
	img := containerd.NewImage(s.client, meta)
	if _, err := readImage(ctx, img); err != nil {
		return Image{}, err
	}
	if err := img.Unpack(ctx, ""); errdefs.IsNotFound(err) {
		return Image{}, fmt.Errorf("import: image %s: %w; the archive is damaged", meta.Name, err)
	} else if err != nil {
		return Image{}, fmt.Errorf("unpack image %s: %w", meta.Name, err)
	}
	s.hold(ctx, img)()
	return s.describe(ctx, img), nil
}

func (s *Images) drop(ctx context.Context, list []images.Image) error {
	var errs []error
	for _, img := range list {
		if err := s.client.ImageService().Delete(ctx, img.Name); err != nil && !errdefs.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (s *Images) rename(ctx context.Context, img images.Image, name string) (images.Image, error) {
	store := s.client.ImageService()
	to, old := img, img.Name
	to.Name = name
	got, err := store.Create(ctx, to)
	if errdefs.IsAlreadyExists(err) {
		got, err = store.Update(ctx, to, "target")
	}
	if err != nil {
		return img, fmt.Errorf("name image %s: %w", name, err)
	}
	if err := store.Delete(ctx, old); err != nil && !errdefs.IsNotFound(err) {
		return got, fmt.Errorf("name image %s: %w", name, err)
	}
	return got, nil
}

// lease protects what is fetched until an image refers to it, for as long as a pull may
// take: the content of a dead process is removed soon after. What a failed pull or import
// fetched is removed at once, since it may be what fills the disk.
func (s *Images) lease(ctx context.Context) (context.Context, func(error), error) {
	store := s.client.LeasesService()
	l, err := store.Create(ctx, leases.WithRandomID(), leases.WithExpiration(pullTimeout+time.Minute))
	if err != nil {
		return ctx, nil, fmt.Errorf("lease content: %w", err)
	}
	return leases.WithLease(ctx, l.ID), func(failed error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callDeadline)
		defer cancel()
		var opts []leases.DeleteOpt
		if failed != nil {
			opts = append(opts, leases.SynchronousDelete)
			s.abort(ctx, l)
		}
		if err := store.Delete(ctx, l, opts...); err != nil {
			s.cfg.Log.Warn("cannot end a lease; it expires", "err", err)
		}
	}, nil
}

// abort discards what was only partly fetched under a lease: containerd would keep it for a
// later attempt to resume.
func (s *Images) abort(ctx context.Context, l leases.Lease) {
	list, err := s.client.LeasesService().ListResources(ctx, l)
	for _, r := range list {
		if r.Type == "ingests" {
			if aerr := s.client.ContentStore().Abort(ctx, r.ID); aerr != nil && !errdefs.IsNotFound(aerr) {
				err = errors.Join(err, aerr)
			}
		}
	}
	if err != nil {
		s.cfg.Log.Warn("cannot throw away what a failed pull left", "err", err)
	}
}

// always returns a function that returns s; its first argument only fixes the type.
func always[T any](_ T, s string) func(T) string { return func(T) string { return s } }

// gunzip decompresses an archive if it is compressed.
func gunzip(r io.Reader) (io.Reader, error) {
	b := bufio.NewReader(r)
	if magic, err := b.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, fmt.Errorf("import: %w", err)
		}
		return z, nil
	}
	return b, nil
}

// mayFetch reports whether an image may be pulled from where its name says.
func (s *Images) mayFetch(name string) error {
	spec, err := reference.Parse(name)
	if err != nil || len(s.cfg.Registries) == 0 {
		return err
	}
	for _, r := range s.cfg.Registries {
		if spec.Locator == r || strings.HasPrefix(spec.Locator, r+"/") {
			return nil
		}
	}
	return imageError(fmt.Errorf("image %q is not on this node, and may not be fetched from there: only from %s (containers.registries)", name, strings.Join(s.cfg.Registries, ", ")))
}

// checkName requires a name that says where an image comes from and which one it is.
func checkName(name string) error {
	spec, err := reference.Parse(name)
	if err == nil && spec.Object == "" {
		err = errors.New("it has neither tag nor digest")
	}
	if err != nil {
		return imageError(fmt.Errorf("image %q: %w; name it as registry/repository:tag or registry/repository@sha256:…", name, err))
	}
	return nil
}
