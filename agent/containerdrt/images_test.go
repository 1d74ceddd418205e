package containerdrt

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/agent/containerdrt/daemon"
	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/cluster"
)

func TestImages(t *testing.T) {
	t.Parallel()
	require(t)
	b := newBench(t)
	for _, c := range []struct {
		name string
		run  func(*testing.T, *bench)
	}{
		{"import", testImport},
		{"refused archives", testBadArchives},
		{"by digest", testByDigest},
		{"near names", testNearNames},
		{"prune", testPrune},
		{"watermarks", testWatermarks},
		{"content is kept through garbage collection", testCollected},
	} {
		t.Run(c.name, func(t *testing.T) {
			sub := *b
			sub.TB = t
			c.run(t, &sub)
		})
	}
}

func (b *bench) importing(archive []byte, name string) []string {
	b.Helper()
	got, err := b.rt.images.Import(b.Context(), bytes.NewReader(archive), name)
	if err != nil {
		b.Fatal(err)
	}
	var names []string
	for _, img := range got {
		names = append(names, img.Name)
	}
	return names
}

func testImport(t *testing.T, b *bench) {
	img := build(t, recipe{shell: true})
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	if _, err := z.Write(img.docker(t, "lab/torch:2")); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		name    string
		archive []byte
		as      string
		want    string
	}{
		{"OCI layout", img.oci(t, "site.test/a:v1"), "", "site.test/a:v1"},
		{"again", img.oci(t, "site.test/a:v1"), "", "site.test/a:v1"},
		{"OCI layout, another name", img.oci(t, "site.test/a:v1"), "site.test/b:v1", "site.test/b:v1"},
		{"OCI layout without a name", img.oci(t, ""), "site.test/c:v1", "site.test/c:v1"},
		{"docker save", img.docker(t, "lab/torch:1"), "", "docker.io/lab/torch:1"},
		{"docker save, gzip", zipped.Bytes(), "", "docker.io/lab/torch:2"},
	} {
		if diff := cmp.Diff([]string{c.want}, b.importing(c.archive, c.as)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
		if got := b.says(b.job(300+i, c.want, "/bin/sh", "-c", "echo ran")); !slices.Equal(got, []string{"ran"}) {
			t.Errorf("%s: a job in it printed %q", c.name, got)
		}
	}
	list, err := b.rt.images.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(list, func(img Image) bool { return img.Name == "site.test/b:v1" })
	if i < 0 || list[i].Digest != img.manifest.digest || list[i].Containers != 1 || list[i].Bytes < 1<<20 || time.Since(list[i].Used) > time.Hour {
		t.Errorf("list: got %+v", list)
	}
	if !slices.IsSortedFunc(list, func(a, b Image) int { return strings.Compare(a.Name, b.Name) }) {
		t.Errorf("list is not by name: %+v", list)
	}
}

func testBadArchives(t *testing.T, b *bench) {
	img := build(t, recipe{entries: []tar.Header{{Name: "x", Size: 64 << 10}}})
	whole := img.oci(t, "site.test/bad:v1")
	forged := img
	forged.layer.data = bytes.Repeat([]byte{'x'}, len(img.layer.data))
	both := tarOf(t)
	for _, c := range []struct {
		name, as, want string
		archive        []byte
	}{
		{"cut short", "", "cut short", whole[:len(whole)/2]},
		{"empty", "", "want an archive", nil},
		{"no tar", "", "want an archive", []byte(strings.Repeat("no archive ", 100))},
		{"no image in it", "", "want an archive", both},
		{"half of a gzip file", "", "import:", []byte{0x1f, 0x8b, 8}},
		{"other content than its digest", "", "import:", forged.oci(t, "site.test/bad:v1")},
		{"without a name", "", "--name", img.oci(t, "")},
		{"for another machine", "", "", build(t, recipe{arch: "s390x"}).oci(t, "site.test/bad:v1")},
		{"a bad name", "no name", "name it as registry/repository:tag", whole},
		{"a name without a tag", "site.test/bad", "neither tag nor digest", whole},
	} {
		got, err := b.rt.images.Import(t.Context(), bytes.NewReader(c.archive), c.as)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %+v, %v, want an error with %q", c.name, got, err, c.want)
		}
		if _, err := b.rt.client.GetImage(b.rt.with(t.Context()), "site.test/bad:v1"); err == nil {
			t.Errorf("%s: an image is left", c.name)
		}
	}
}

// testByDigest has a digest mean the same content whatever happens to tags.
func testByDigest(t *testing.T, b *bench) {
	reg := newRegistry(t, "", nil)
	repo := strings.TrimSuffix(reg.ref(), ":v1")
	img, err := b.rt.images.Pull(t.Context(), repo+"@"+reg.top)
	if err != nil || img.Digest != reg.top {
		t.Fatalf("pull by digest: got %+v, %v", img, err)
	}
	if _, err := b.rt.images.Pull(t.Context(), repo+"@sha256:"+strings.Repeat("0", 64)); err == nil || !strings.Contains(err.Error(), lastingWord) {
		t.Errorf("a digest that the registry has not: got %v", err)
	}
	// The tag moves: what was pulled by tag is used until it is pulled anew.
	tagged, err := b.rt.images.Pull(t.Context(), reg.ref())
	if err != nil || tagged.Digest != reg.top {
		t.Fatalf("pull by tag: got %+v, %v", tagged, err)
	}
	next := build(t, recipe{entries: []tar.Header{{Name: "next"}}})
	for _, x := range []blob{next.layer, next.config, next.manifest} {
		reg.blobs[x.digest] = x
	}
	old := reg.top
	reg.top = next.manifest.digest
	asked := reg.tags.Load()
	found, release, err := b.rt.images.find(b.rt.with(t.Context()), reg.ref(), cluster.AttemptID{})
	if err != nil {
		t.Fatal(err)
	}
	release()
	if got := found.Target().Digest.String(); got != old || reg.tags.Load() != asked {
		t.Errorf("an image that is here: got %s after %d questions, want %s and none", got, reg.tags.Load()-asked, old)
	}
	if moved, err := b.rt.images.Pull(t.Context(), reg.ref()); err != nil || moved.Digest != next.manifest.digest {
		t.Errorf("pulled anew: got %+v, %v, want %s", moved, err, next.manifest.digest)
	}
	// An archive brings what is named by digest, under whatever name.
	reg.Close()
	other := build(t, recipe{entries: []tar.Header{{Name: "other"}}})
	b.importing(other.oci(t, "site.test/other:v1"), "")
	found, release, err = b.rt.images.find(b.rt.with(t.Context()), "elsewhere.test/x/y@"+other.manifest.digest, cluster.AttemptID{})
	if err != nil {
		t.Fatal(err)
	}
	release()
	if found.Name() != "site.test/other:v1" {
		t.Errorf("by digest: got %s", found.Name())
	}
}

func testNearNames(t *testing.T, b *bench) {
	down := newRegistry(t, "", nil)
	host := strings.TrimPrefix(down.URL, "http://")
	down.Close()
	b.importing(build(t, recipe{}).oci(t, host+"/lab/pytorch:2.9"), "")
	_, _, err := b.rt.images.find(b.rt.with(t.Context()), host+"/lab/pytorhc:2.9", cluster.AttemptID{})
	if err == nil || !strings.Contains(err.Error(), "on this node are "+host+"/lab/pytorch:2.9") {
		t.Errorf("got %v, want the near name", err)
	}
	_, _, err = b.rt.images.find(b.rt.with(t.Context()), host+"/quite/different:v77", cluster.AttemptID{})
	if err == nil || !strings.Contains(err.Error(), "has a similar name") {
		t.Errorf("got %v, want word that nothing is near", err)
	}
}

// age sets when images were last used.
func (b *bench) age(names map[string]time.Duration) {
	b.Helper()
	for name, d := range names {
		img, err := b.rt.client.GetImage(b.rt.with(b.Context()), name)
		if err != nil {
			b.Fatal(err)
		}
		meta := img.Metadata()
		meta.Labels[labelUsed] = time.Now().Add(-d).UTC().Format(time.RFC3339)
		if _, err := b.rt.client.ImageService().Update(b.rt.with(b.Context()), meta, "labels."+labelUsed); err != nil {
			b.Fatal(err)
		}
	}
}

func (b *bench) names() []string {
	b.Helper()
	list, err := b.rt.images.List(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	var out []string
	for _, img := range list {
		out = append(out, img.Name)
	}
	return out
}

func testPrune(t *testing.T, b *bench) {
	for i := range 3 {
		b.importing(build(t, recipe{shell: true, entries: []tar.Header{{Name: fmt.Sprint("p", i)}}}).oci(t, fmt.Sprintf("site.test/prune:%d", i)), "")
	}
	l := b.job(400, "site.test/prune:0", "/bin/sh", "-c", "echo; sleep 1000")
	b.start(l)
	b.lines(l, 1)
	b.age(map[string]time.Duration{"site.test/prune:0": 9 * time.Hour, "site.test/prune:1": 8 * time.Hour, "site.test/prune:2": time.Hour})
	gone, err := b.rt.images.Prune(t.Context(), 2*time.Hour)
	if err != nil || len(gone) != 1 || gone[0].Name != "site.test/prune:1" {
		t.Errorf("pruned %+v, %v, want the one that is old and unused", gone, err)
	}
	have := b.names()
	if !slices.Contains(have, "site.test/prune:0") || !slices.Contains(have, "site.test/prune:2") {
		t.Errorf("left are %q", have)
	}
	if err := b.rt.Signal(t.Context(), l.ID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.wait(l.ID)
	if err := b.rt.Delete(t.Context(), l.ID); err != nil {
		t.Fatal(err)
	}
	if gone, err = b.rt.images.Prune(t.Context(), 8*time.Hour); err != nil || len(gone) == 0 || gone[0].Name != "site.test/prune:0" {
		t.Errorf("after the job: pruned %+v, %v, want its image, the oldest, first", gone, err)
	}
}

// testWatermarks fills a disk that only the test sees.
func testWatermarks(t *testing.T, b *bench) {
	s := b.rt.images
	defer func(f func(context.Context) (usage, error)) { s.disk = f }(s.disk)
	if u, err := s.measure(b.rt.with(t.Context())); err != nil || u.total == 0 || u.path == "" || u.used > u.total {
		t.Errorf("the true disk: got %+v, %v", u, err)
	}
	load := func() {
		if _, err := s.Prune(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		for i := range 4 {
			b.importing(build(t, recipe{entries: []tar.Header{{Name: fmt.Sprint("w", i)}}}).oci(t, fmt.Sprintf("site.test/w:%d", i)), "")
		}
		b.age(map[string]time.Duration{"site.test/w:0": 3 * time.Hour, "site.test/w:1": 4 * time.Hour, "site.test/w:2": 2 * time.Hour, "site.test/w:3": time.Second})
	}
	base := 0 // percent without those four; each takes 3
	s.disk = func(context.Context) (usage, error) {
		n := 0
		for _, name := range b.names() {
			if strings.HasPrefix(name, "site.test/w:") {
				n++
			}
		}
		return usage{path: "/disk", used: uint64(base + 3*n), total: 100}, nil
	}
	for _, c := range []struct {
		name string
		base int
		left []string // of the four
		fail string
	}{
		{"room", 70, []string{"0", "1", "2", "3"}, ""},
		{"one must go: the longest unused", 75, []string{"0", "2", "3"}, ""},
		{"all but what was just used", 82, []string{"3"}, ""},
		{"still over the high mark", 86, []string{"3"}, ""},
		{"full", 89, []string{"3"}, "92 % full and 90 % is the limit"},
	} {
		base = 0
		load()
		base = c.base
		err := s.makeRoom(b.rt.with(t.Context()))
		if (err == nil) != (c.fail == "") || err != nil && !strings.Contains(err.Error(), c.fail) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.fail)
		}
		var left []string
		for _, name := range b.names() {
			if n, ok := strings.CutPrefix(name, "site.test/w:"); ok {
				left = append(left, n)
			}
		}
		if diff := cmp.Diff(c.left, left); diff != "" {
			t.Errorf("%s: left (-want +got):\n%s", c.name, diff)
		}
		if c.fail != "" {
			if _, err := s.Pull(t.Context(), newRegistry(t, "", nil).ref()); err == nil || !strings.Contains(err.Error(), c.fail) {
				t.Errorf("%s: pull: got %v", c.name, err)
			}
		}
	}
	base = 0
	load()
	img, release, err := s.find(b.rt.with(t.Context()), "site.test/w:1", cluster.AttemptID{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Prune(t.Context(), 0); err != nil || !slices.Contains(b.names(), img.Name()) {
		t.Errorf("an image that is being given to a container is gone (%v)", err)
	}
	release()
	if _, err := s.Prune(t.Context(), 0); err != nil || slices.Contains(b.names(), img.Name()) {
		t.Errorf("an image is kept for ever (%v)", err)
	}
}

// testCollected has containerd collect garbage all through pulls: what is not
// leased would go.
func testCollected(t *testing.T, b *bench) {
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			// Deleting a lease at once runs the collector.
			leases := b.rt.client.LeasesService()
			l, err := leases.Create(b.rt.with(t.Context()), leaseID())
			if err == nil {
				err = leases.Delete(b.rt.with(t.Context()), l, synchronous)
			}
			if err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for i := range 5 {
		reg := newRegistry(t, "", nil)
		reg.spoil = func(b blob, n int64) []byte { // the first answer of each is lost
			if n == 1 {
				return b.data[:1]
			}
			return b.data
		}
		ref := fmt.Sprintf("%s%d", reg.ref(), i)
		img, release, err := b.rt.images.find(b.rt.with(t.Context()), ref, cluster.AttemptID{})
		if err != nil {
			t.Errorf("pull %d: %v", i, err)
			continue
		}
		if ok, err := img.IsUnpacked(b.rt.with(t.Context()), ""); err != nil || !ok {
			t.Errorf("pull %d: unpacked %v, %v", i, ok, err)
		}
		release()
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// smallDisk is a directory on a disk of its own.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "cd")
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(unix.Unmount(dir, unix.MNT_DETACH), os.Remove(dir)); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestDiskFull has containerd on a disk too small for an image: the error says
// so, blames nobody else, and leaves the node fit for the next image.
func TestDiskFull(t *testing.T) {
	require(t)
	d, err := daemon.Start(t.Context(), daemon.Config{Dir: smallDisk(t, "16m")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
	})
	s, err := OpenImages(t.Context(), ImagesConfig{Address: d.Socket(), Namespace: "full", PullPause: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	big := build(t, recipe{entries: []tar.Header{{Name: "big", Size: 32 << 20}}})
	small := build(t, recipe{entries: []tar.Header{{Name: "small", Size: 1 << 20}}})
	if _, err := s.Import(t.Context(), bytes.NewReader(big.oci(t, "site.test/big:v1")), ""); err == nil || !strings.Contains(err.Error(), "berth image prune") {
		t.Errorf("import: got %v, want word of the disk", err)
	}
	reg := newRegistry(t, "", nil)
	for _, x := range []blob{big.layer, big.config, big.manifest} {
		reg.blobs[x.digest] = x
	}
	reg.top = big.manifest.digest
	_, err = s.Pull(t.Context(), reg.ref())
	if _, final := errors.AsType[*launch.Error](err); final || err == nil || !strings.Contains(err.Error(), "has no room") {
		t.Errorf("pull: got %v, want an error that may pass and word of the disk", err)
	}
	deadline := time.Now().Add(10 * time.Minute)
	for err = io.EOF; err != nil && time.Now().Before(deadline); { // what was fetched in vain is collected soon
		_, err = s.Import(t.Context(), bytes.NewReader(small.oci(t, "site.test/small:v1")), "")
	}
	if err != nil {
		t.Errorf("a small image afterwards: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(os.TempDir(), "containerd-mount*")); err != nil || len(left) > 0 {
		t.Errorf("mounts are left: %v, %v", left, err)
	}
}

func TestOpenImagesWithoutContainerd(t *testing.T) {
	_, err := OpenImages(t.Context(), ImagesConfig{Address: filepath.Join(t.TempDir(), "no.sock"), Namespace: "x"})
	if !errors.Is(err, ErrNoContainerd) {
		t.Errorf("got %v, want ErrNoContainerd", err)
	}
}

func TestNearest(t *testing.T) {
	for _, c := range []struct {
		ref  string
		have []string
		want []string
	}{
		{"r.test/lab/torch:2.9", []string{"r.test/lab/torch:2.8", "r.test/lab/jax:1"}, []string{"r.test/lab/torch:2.8"}},
		{"torch:2", []string{"docker.io/library/torch:2"}, []string{"docker.io/library/torch:2"}},
		{"r.test/tocrh:1", []string{"r.test/torch:1"}, []string{"r.test/torch:1"}},
		{"r.test/a:1", []string{"other.test/quite/else:9"}, nil},
		{"r.test/a:1", []string{"r.test/a:2", "r.test/a:11", "r.test/a:1111", "r.test/a:3"}, []string{"r.test/a:11", "r.test/a:2", "r.test/a:3"}},
	} {
		if diff := cmp.Diff(c.want, nearest(c.ref, c.have)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.ref, diff)
		}
	}
}

func TestChainID(t *testing.T) {
	// From the OCI image specification: a chain of one is its layer's digest.
	one := "sha256:" + strings.Repeat("1", 64)
	two := "sha256:" + strings.Repeat("2", 64)
	if got := chainID([]string{one}); got != one {
		t.Errorf("one layer: got %s", got)
	}
	got := chainID([]string{one, two})
	if got == chainID([]string{two, one}) || len(got) != len(one) || chainID(nil) != "" {
		t.Errorf("two layers: got %s", got)
	}
}
