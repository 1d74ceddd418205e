package daemon

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
)

// busyboxRef is the name of the image that ImportBusybox imports.
const busyboxRef = "berth.test/busybox:static"

// applets are the commands that the image has.
var applets = []string{"sh", "true", "false", "sleep", "cat", "echo", "id", "env", "pwd", "ls", "stat", "mount", "kill", "touch", "dd", "head", "tail", "grep", "ps", "df"}

// ImportBusybox builds an image from the machine's own /bin/busybox and imports it, so that
// tests need no registry. Its configuration asks for much that a job must not get from an
// image: to be root, and LD_, CUDA_ and NVIDIA_ variables.
func (d *Daemon) ImportBusybox(ctx context.Context, namespace string) (ref string, err error) {
	archive, err := BusyboxArchive("")
	if err != nil {
		return "", err
	}
	c, err := containerd.New(d.Socket(), containerd.WithDefaultNamespace(namespace))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if _, err := c.Import(namespaces.WithNamespace(ctx, namespace), archive); err != nil {
		return "", fmt.Errorf("import image: %w", err)
	}
	return busyboxRef, nil
}

// BusyboxArchive returns the image that ImportBusybox imports: an OCI image layout of one
// layer in a tar file. Its file /plain/text holds text, which distinguishes images.
func BusyboxArchive(text string) (io.Reader, error) {
	bin, err := os.ReadFile("/bin/busybox")
	if err != nil {
		return nil, fmt.Errorf("%w; on Debian: apt-get install busybox-static", err)
	}
	return busyboxArchive(bin, []byte(text))
}

func busyboxArchive(bin, text []byte) (io.Reader, error) {
	layer, err := busyboxLayer(bin, text)
	if err != nil {
		return nil, err
	}
	var l layout
	layerDesc := l.blob("application/vnd.oci.image.layer.v1.tar", layer)
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{
			"User": "0:0", "WorkingDir": "/root", "Entrypoint": []string{"/bin/false"},
			"Env": []string{
				"PATH=/image/bin:/bin", "LD_PRELOAD=/image/evil.so", "NVIDIA_VISIBLE_DEVICES=all",
				"CUDA_VISIBLE_DEVICES=0", "IMAGE_ONLY=1",
			},
			"Labels": map[string]string{labelProbe: "1"},
		},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{layerDesc.Digest}},
	})
	if err != nil {
		return nil, err
	}
	configDesc := l.blob("application/vnd.oci.image.config.v1+json", config)
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": configDesc, "layers": []descriptor{layerDesc},
	})
	if err != nil {
		return nil, err
	}
	desc := l.blob("application/vnd.oci.image.manifest.v1+json", manifest)
	desc.Annotations = map[string]string{"io.containerd.image.name": busyboxRef}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "manifests": []descriptor{desc}})
	if err != nil {
		return nil, err
	}
	l.files = append(l.files, tarFile{"index.json", index}, tarFile{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)})
	return l.archive()
}

// labelProbe is a label of the image; no container of a job may carry it.
const labelProbe = "berth.test/from-image"

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type tarFile struct {
	name string
	data []byte
}

// layout collects the files of an OCI image layout.
type layout struct{ files []tarFile }

func (l *layout) blob(mediaType string, data []byte) descriptor {
	sum := sha256.Sum256(data)
	digest := hex.EncodeToString(sum[:])
	l.files = append(l.files, tarFile{"blobs/sha256/" + digest, data})
	return descriptor{MediaType: mediaType, Digest: "sha256:" + digest, Size: len(data)}
}

func (l *layout) archive() (io.Reader, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range l.files {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.data)), Typeflag: tar.TypeReg}); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	return &buf, w.Close()
}

// busyboxLayer is the root file system: busybox, its applets as links, and
// the directories that a container needs.
func busyboxLayer(bin, text []byte) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	headers := []*tar.Header{
		{Name: "bin/busybox", Mode: 0o755, Size: int64(len(bin)), Typeflag: tar.TypeReg},
		{Name: "plain/", Mode: 0o755, Typeflag: tar.TypeDir},
		{Name: "plain/text", Mode: 0o644, Size: int64(len(text)), Typeflag: tar.TypeReg},
	}
	for _, a := range applets {
		headers = append(headers, &tar.Header{Name: "bin/" + a, Linkname: "busybox", Typeflag: tar.TypeSymlink, Mode: 0o777})
	}
	for _, d := range []string{"etc/", "proc/", "sys/", "dev/", "root/", "run/", "image/", "image/bin/"} {
		headers = append(headers, &tar.Header{Name: d, Mode: 0o755, Typeflag: tar.TypeDir})
	}
	headers = append(headers, &tar.Header{Name: "tmp/", Mode: 0o1777, Typeflag: tar.TypeDir})
	for _, h := range headers {
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if h.Size > 0 {
			data := bin
			if h.Name == "plain/text" {
				data = text
			}
			if _, err := w.Write(data); err != nil {
				return nil, err
			}
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}
