package containerdrt

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
)

// recipe says what an image of a test is made of.
type recipe struct {
	arch   string // this machine's when empty
	config map[string]any
	// shell adds busybox and its links, and what a root needs.
	shell   bool
	entries []tar.Header // more files and links; empty ones but for Size
	bulk    byte         // what sized files are filled with
}

type blob struct {
	mediaType, digest string
	data              []byte
}

func newBlob(mediaType string, data []byte) blob {
	return blob{mediaType, fmt.Sprintf("sha256:%x", sha256.Sum256(data)), data}
}

func (b blob) desc() map[string]any {
	return map[string]any{"mediaType": b.mediaType, "digest": b.digest, "size": len(b.data)}
}

// built is an image of one layer.
type built struct{ layer, config, manifest blob }

func mustJSON(t testing.TB, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func build(t testing.TB, r recipe) built {
	t.Helper()
	var out built
	out.layer = newBlob("application/vnd.oci.image.layer.v1.tar", layerOf(t, r))
	if r.arch == "" {
		r.arch = runtime.GOARCH
	}
	config := map[string]any{
		"architecture": r.arch, "os": "linux", "rootfs": map[string]any{"type": "layers", "diff_ids": []any{out.layer.digest}},
	}
	if r.config != nil {
		config["config"] = r.config
	}
	out.config = newBlob("application/vnd.oci.image.config.v1+json", mustJSON(t, config))
	out.manifest = newBlob("application/vnd.oci.image.manifest.v1+json", mustJSON(t, map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": out.config.desc(), "layers": []any{out.layer.desc()},
		"annotations": map[string]string{"org.opencontainers.image.hooks": "/bin/evil", "cdi.k8s.io/x": "nvidia.com/gpu=all"},
	}))
	return out
}

func layerOf(t testing.TB, r recipe) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	put := func(h tar.Header, data []byte) {
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if h.Mode == 0 {
			h.Mode = 0o755
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if r.shell {
		bin, err := os.ReadFile("/bin/busybox")
		if err != nil {
			t.Skipf("%v; on Debian: apt-get install busybox-static", err)
		}
		put(tar.Header{Name: "bin/busybox", Size: int64(len(bin)), Mode: 0o4755}, bin)
		for _, name := range []string{"sh", "env", "id", "ls", "cat", "mount", "touch", "sleep", "mknod", "unshare", "dd"} {
			put(tar.Header{Name: "bin/" + name, Typeflag: tar.TypeSymlink, Linkname: "busybox"}, nil)
		}
	}
	for _, h := range r.entries {
		put(h, bytes.Repeat([]byte{r.bulk}, int(h.Size)))
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func tarOf(t testing.TB, files ...blob) []byte { // digest is the name
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range files {
		err := w.WriteHeader(&tar.Header{Name: f.digest, Mode: 0o644, Size: int64(len(f.data)), Typeflag: tar.TypeReg})
		if err == nil {
			_, err = w.Write(f.data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// oci is an archive of an OCI image layout. With an empty name the image has none.
func (b built) oci(t testing.TB, name string) []byte {
	t.Helper()
	desc := b.manifest.desc()
	if name != "" {
		desc["annotations"] = map[string]string{"io.containerd.image.name": name}
	}
	var files []blob
	for _, x := range []blob{b.layer, b.config, b.manifest} {
		files = append(files, blob{digest: "blobs/" + strings.Replace(x.digest, ":", "/", 1), data: x.data})
	}
	return tarOf(t, append(files,
		blob{digest: "index.json", data: mustJSON(t, map[string]any{"schemaVersion": 2, "manifests": []any{desc}})},
		blob{digest: "oci-layout", data: []byte(`{"imageLayoutVersion":"1.0.0"}`)})...)
}

// docker is an archive as "docker save" writes it.
func (b built) docker(t testing.TB, name string) []byte {
	t.Helper()
	config := strings.TrimPrefix(b.config.digest, "sha256:") + ".json"
	return tarOf(t, blob{digest: config, data: b.config.data}, blob{digest: "layer.tar", data: b.layer.data},
		blob{digest: "manifest.json", data: mustJSON(t, []any{map[string]any{"Config": config, "RepoTags": []string{name}, "Layers": []string{"layer.tar"}}})})
}
