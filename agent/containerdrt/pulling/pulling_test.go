package pulling

import (
	"fmt"
	"testing"

	"github.com/containerd/containerd/v2/core/content"

	"github.com/berth-scheduler/berth/cluster"
)

// TestPullingAddsUp has layers come one after the other, and in parts.
func TestPullingAddsUp(t *testing.T) {
	t.Parallel()
	const tarball = "application/vnd.oci.image.layer.v1.tar+gzip"
	var p Image
	if got := p.State(nil); got != (cluster.Pull{}) {
		t.Errorf("nothing is known: %+v", got)
	}
	p.saw(descriptor{Digest: "sha256:m"}, []descriptor{{tarball, "sha256:a", 100}, {tarball, "sha256:b", 50}, {tarball, "sha256:a", 100}, {"application/vnd.oci.image.config.v1+json", "sha256:c", 7}})
	under := []content.Status{{Ref: "layer-sha256:a", Offset: 30}, {Ref: "layer-sha256:b", Offset: 70}, {Ref: "layer-sha256:z", Offset: 9}}
	if got, want := p.State(under), (cluster.Pull{Layers: 2, Bytes: 150, Got: 80}); got != want {
		t.Errorf("on their way: got %+v, want %+v", got, want)
	}
	p.saw(descriptor{Digest: "sha256:a"}, nil)
	if got, want := p.State(nil), (cluster.Pull{Layers: 2, Done: 1, Bytes: 150, Got: 100}); got != want {
		t.Errorf("one is here: got %+v, want %+v", got, want)
	}
	for i := range 2 * maxLayers {
		p.saw(descriptor{}, []descriptor{{tarball, fmt.Sprint(i), -5}})
	}
	if got := p.State(nil); got.Layers != maxLayers || got.Bytes != 150 {
		t.Errorf("an image that nobody can have: %+v", got)
	}
}
