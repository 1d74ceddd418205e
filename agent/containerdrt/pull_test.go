package containerdrt

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/cluster"
)

// registry is the read side of an image registry on loopback. Its image is
// "x/y"; it answers for it when faults says nothing.
type registry struct {
	*httptest.Server
	blobs map[string]blob // by digest
	top   string          // digest of the manifest
	tags  atomic.Int64
	// faults answers the nth question for a tag, n from 1, and says whether
	// it did.
	faults func(w http.ResponseWriter, n int64) bool
	// spoil changes what is sent of a blob, the nth time that one is asked for.
	spoil func(b blob, n int64) []byte
	gets  atomic.Int64
	// slow sends a blob, when it is set.
	slow func(w http.ResponseWriter, b blob)
}

func newRegistry(t *testing.T, arch string, faults func(http.ResponseWriter, int64) bool) *registry {
	t.Helper()
	r := &registry{blobs: map[string]blob{}, faults: faults}
	// New content each time: what containerd has already it does not ask for.
	img := build(t, recipe{arch: arch, entries: []tar.Header{{Name: "hello" + strconv.FormatInt(time.Now().UnixNano(), 10)}}})
	for _, b := range []blob{img.layer, img.config, img.manifest} {
		r.blobs[b.digest] = b
	}
	r.top = img.manifest.digest
	r.Server = httptest.NewServer(http.HandlerFunc(r.serve))
	t.Cleanup(r.Close)
	return r
}

func (r *registry) serve(w http.ResponseWriter, req *http.Request) {
	name := req.URL.Path[strings.LastIndex(req.URL.Path, "/")+1:]
	if !strings.HasPrefix(name, "sha256:") {
		if r.faults != nil && r.faults(w, r.tags.Add(1)) {
			return
		}
		name = r.top
	}
	b, ok := r.blobs[name]
	if !ok {
		http.NotFound(w, req)
		return
	}
	w.Header().Set("Content-Type", b.mediaType)
	w.Header().Set("Docker-Content-Digest", name)
	w.Header().Set("Content-Length", fmt.Sprint(len(b.data)))
	if req.Method == http.MethodGet && r.slow != nil {
		r.slow(w, b)
	} else if req.Method == http.MethodGet {
		data := b.data
		if r.spoil != nil {
			data = r.spoil(b, r.gets.Add(1))
		}
		_, _ = w.Write(data) // a client that went away is its own trouble
	}
}

func (r *registry) ref() string { return strings.TrimPrefix(r.URL, "http://") + "/x/y:v1" }

func spoilt(t *testing.T, spoil func(blob, int64) []byte) *registry {
	r := newRegistry(t, runtime.GOARCH, nil)
	r.spoil = spoil
	return r
}

func answers(code int) func(http.ResponseWriter, int64) bool {
	return func(w http.ResponseWriter, _ int64) bool {
		if code == http.StatusUnauthorized {
			w.Header().Set("Www-Authenticate", `Basic realm="private"`)
		}
		w.WriteHeader(code)
		return true
	}
}

// nobody returns an address that refuses connections, and that no other process
// comes to listen at before the test ends.
func nobody(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return "127.0.0.1:" + strconv.Itoa(at.(*unix.SockaddrInet4).Port)
}

// TestPullsSayHowFarTheyAre looks at a pull whose layer stops in the middle.
func TestPullsSayHowFarTheyAre(t *testing.T) {
	require(t)
	b := newBench(t)
	if got := b.rt.Pulls(t.Context()); len(got) != 0 {
		t.Errorf("before any: %v", got)
	}
	reg := newRegistry(t, "", nil)
	img := build(t, recipe{shell: true, bulk: byte(time.Now().UnixNano()), entries: []tar.Header{{Name: "large" + strconv.FormatInt(time.Now().UnixNano(), 10), Size: 8 << 20}}})
	reg.blobs = map[string]blob{img.layer.digest: img.layer, img.config.digest: img.config, img.manifest.digest: img.manifest}
	reg.top = img.manifest.digest
	half, goOn := len(img.layer.data)/2, make(chan struct{})
	reg.slow = func(w http.ResponseWriter, of blob) {
		if of.digest == img.layer.digest {
			_, _ = w.Write(of.data[:half])
			w.(http.Flusher).Flush()
			<-goOn
			of.data = of.data[half:]
		}
		_, _ = w.Write(of.data)
	}
	l := b.job(1, reg.ref(), "/bin/sh", "-c", "true")
	made := make(chan error, 1)
	go func() { made <- b.rt.Create(t.Context(), l) }()
	want := cluster.Pull{Layers: 1, Bytes: int64(len(img.layer.data)), Got: int64(half)}
	for got := (cluster.Pull{}); got.Got < want.Got/2; time.Sleep(5 * time.Millisecond) {
		select {
		case err := <-made:
			t.Fatalf("it was made before its image was here: %v", err)
		default:
		}
		got = b.rt.Pulls(t.Context())[l.ID]
		if got.Done > 0 || got.Got > want.Got || got.Layers > want.Layers || got.Layers > 0 && got.Bytes != want.Bytes {
			t.Fatalf("got %+v, at most %+v", got, want)
		}
	}
	close(goOn)
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	if got := b.rt.Pulls(t.Context()); len(got) != 0 {
		t.Errorf("afterwards: %v", got)
	}
	names, err := b.rt.Held(t.Context())
	for _, name := range []string{reg.ref(), img.manifest.digest} {
		if _, held := slices.BinarySearch(names, name); err != nil || !held {
			t.Errorf("%s is not among what is held: %v, %v", name, names, err)
		}
	}
	if err := b.rt.Delete(t.Context(), l.ID); err != nil {
		t.Fatal(err)
	}
}

const lastingWord, passingWord = "check its name", "may be back later"

func TestPull(t *testing.T) {
	require(t)
	b := newBench(t)
	down := &registry{Server: &httptest.Server{URL: "http://" + nobody(t)}}
	for _, c := range []struct {
		name string
		reg  *registry
		want string // "" is success
	}{
		{"served", newRegistry(t, runtime.GOARCH, nil), ""},
		{"back after two refusals", newRegistry(t, runtime.GOARCH, func(w http.ResponseWriter, n int64) bool {
			return n <= 2 && answers(http.StatusBadGateway)(w, n)
		}), ""},
		{"no such tag", newRegistry(t, runtime.GOARCH, answers(http.StatusNotFound)), lastingWord},
		{"needs a login", newRegistry(t, runtime.GOARCH, answers(http.StatusUnauthorized)), lastingWord},
		{"forbidden", newRegistry(t, runtime.GOARCH, answers(http.StatusForbidden)), lastingWord},
		{"of another machine", newRegistry(t, "s390x", nil), "is built for linux/s390x"},
		{"busy", newRegistry(t, runtime.GOARCH, answers(http.StatusTooManyRequests)), passingWord},
		{"cut short at first", spoilt(t, func(b blob, n int64) []byte {
			if n == 1 {
				return b.data[:len(b.data)/2]
			}
			return b.data
		}), ""},
		{"always cut short", spoilt(t, func(b blob, _ int64) []byte { return b.data[:len(b.data)/2] }), passingWord},
		{"other bytes than the digest's", spoilt(t, func(b blob, _ int64) []byte { return bytes.Repeat([]byte{'x'}, len(b.data)) }), passingWord},
		{"broken", newRegistry(t, runtime.GOARCH, answers(http.StatusInternalServerError)), passingWord},
		{"not there", down, passingWord},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx := b.rt.with(t.Context())
			img, release, err := b.rt.images.find(ctx, c.reg.ref(), cluster.AttemptID{})
			if err == nil {
				defer release()
				_, err = readImage(ctx, img)
			}
			if c.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				if got := img.Name(); got != c.reg.ref() {
					t.Errorf("pulled %s, want %s", got, c.reg.ref())
				}
				return
			}
			le, ok := errors.AsType[*launch.Error](err)
			if !ok || le.Code != 125 || le.Reason != "IMAGE" || !strings.Contains(le.Error(), c.want) {
				t.Errorf("got %v, want a launch error IMAGE that says %q", err, c.want)
			}
		})
	}
}

// TestPullGivenUp has the end of an agent not be blamed on the image.
func TestPullGivenUp(t *testing.T) {
	require(t)
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	reg := newRegistry(t, runtime.GOARCH, func(w http.ResponseWriter, n int64) bool {
		cancel()
		return answers(http.StatusBadGateway)(w, n)
	})
	_, _, err := b.rt.images.find(b.rt.with(ctx), reg.ref(), cluster.AttemptID{})
	if _, ok := errors.AsType[*launch.Error](err); ok || err == nil {
		t.Errorf("got %v, want an error that may pass", err)
	}
}

// TestRegistries: images are fetched from where the site says, and from nowhere that
// only looks like it; what is here needs no registry.
func TestRegistries(t *testing.T) {
	s := &Images{cfg: ImagesConfig{Registries: []string{"registry.example.org", "docker.io/library"}}}
	for name, want := range map[string]bool{
		"registry.example.org/lab/torch:2.9": true, "docker.io/library/busybox:1": true, "docker.io/library/a/b@sha256:" + strings.Repeat("0", 64): true,
		"docker.io/someone/busybox:1": false, "docker.io/librarian/busybox:1": false, "registry.example.org.evil.net/x:1": false,
		"registry.example.org:5000/x:1": false, "evil.net/registry.example.org/x:1": false, "localhost/x:1": false,
	} {
		if err := s.mayFetch(name); (err == nil) != want || !want && !strings.Contains(err.Error(), "containers.registries") {
			t.Errorf("%s: %v", name, err)
		}
	}
	require(t)
	b := newBench(t)
	b.rt.images.cfg.Registries = []string{"registry.example.org"}
	reg := newRegistry(t, runtime.GOARCH, nil)
	le, ok := errors.AsType[*launch.Error](func() error {
		_, _, err := b.rt.images.find(b.rt.with(t.Context()), reg.ref(), cluster.AttemptID{})
		return err
	}())
	if !ok || le.Reason != "IMAGE" || reg.tags.Load() != 0 {
		t.Errorf("got %v after %d questions to the registry, want a final refusal before any", le, reg.tags.Load())
	}
	_, release, err := b.rt.images.find(b.rt.with(t.Context()), b.image, cluster.AttemptID{})
	if err != nil {
		t.Fatalf("an image that is here: %v", err)
	}
	release()
}
