package e2e

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/agent/containerdrt/daemon"
)

// registry is the read side of an image registry on loopback that has one image. Of its
// layer it sends the first half, and the rest when more is closed.
type registry struct {
	*httptest.Server
	files map[string][]byte // by their base names in the image's layout
	more  chan struct{}
}

func newRegistry(t *testing.T) *registry {
	t.Helper()
	archive, err := daemon.BusyboxArchive(strings.Repeat("pulled\n", 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	r := &registry{files: map[string][]byte{}, more: make(chan struct{})}
	for in := tar.NewReader(archive); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			r.files[path.Base(h.Name)], err = io.ReadAll(in)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	r.Server = httptest.NewServer(http.HandlerFunc(r.serve))
	t.Cleanup(r.Close)
	return r
}

func (r *registry) image() string { return strings.TrimPrefix(r.URL, "http://") + "/lab/busybox:1" }

func (r *registry) serve(w http.ResponseWriter, req *http.Request) {
	name, pinned := strings.CutPrefix(path.Base(req.URL.Path), "sha256:")
	if !pinned { // the tag
		var index struct {
			Manifests []struct{ Digest string } `json:"manifests"`
		}
		if err := json.Unmarshal(r.files["index.json"], &index); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		name = strings.TrimPrefix(index.Manifests[0].Digest, "sha256:")
	}
	data, ok := r.files[name]
	if !ok {
		http.NotFound(w, req)
		return
	}
	if strings.Contains(req.URL.Path, "/manifests/") {
		w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
	}
	w.Header().Set("Docker-Content-Digest", "sha256:"+name)
	w.Header().Set("Content-Length", fmt.Sprint(len(data)))
	if req.Method != http.MethodGet {
		return
	}
	if len(data) > 1<<16 { // the layer
		_, _ = w.Write(data[:len(data)/2])
		w.(http.Flusher).Flush()
		<-r.more
		data = data[len(data)/2:]
	}
	_, _ = w.Write(data)
}

// pullsAreSeen has a job wait for its image: wherever people look it says so, and how much
// of it is here.
func pullsAreSeen(t *testing.T, c *cluster) {
	t.Helper()
	r := newRegistry(t)
	id := parseID(t, c.runAs(alice, "submit", "--parsable", "-D", openDir(t), "--image", r.image(), "--", "true").stdout)
	defer func() { close(r.more); c.await(id, "COMPLETED") }()
	var j struct {
		State  string `json:"state"`
		Reason string `json:"reason"`
		Detail string `json:"reason_detail"`
	}
	c.eventually("half of the layer", func() bool {
		if c.showInto(id, &j); j.State == "COMPLETED" || j.State == "FAILED" {
			t.Fatalf("it ended %s without its image: %s", j.State, j.Detail)
		}
		return strings.Contains(j.Detail, "0 of 1 layers") && !strings.Contains(j.Detail, "(0 %)")
	})
	if j.State != "STARTING" || j.Reason != "PullingImage" {
		t.Errorf("it is %s because of %s: %s", j.State, j.Reason, j.Detail)
	}
	for _, args := range [][]string{{"queue"}, {"why", fmt.Sprint(id)}, {"show", fmt.Sprint(id)}} {
		if out := c.runAs(alice, args...).stdout; !strings.Contains(out, "PullingImage") {
			t.Errorf("%v:\n%s", args, out)
		}
	}
	if out := c.runAs(alice, "logs", fmt.Sprint(id)); out.code == 0 || !strings.Contains(out.stderr, "has not started") {
		t.Errorf("logs: %d %s", out.code, out.stderr)
	}
}
