package containerdrt

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/berth-scheduler/berth/agent/gpu/cdi"
	"github.com/berth-scheduler/berth/agent/jobside"
	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
)

// The self-test of device rules runs our own binary where a job would run, as "device-probe
// PATH...", in a container created in the same way.

const (
	// probeJob is never a real job's id: the cluster does not count that far.
	probeJob   = cluster.JobID(1<<63 - 1)
	probeImage = "berth.local/device-probe:1"
	probeTime  = 30 * time.Second
	probeOther = jobside.Dir + "/other" // GPU device nodes are placed here
)

// ProbeDevices implements cdi.Prober.
func (r *Runtime) ProbeDevices(ctx context.Context, p cdi.Probe) (map[string]syscall.Errno, error) {
	return prober{r}.probe(ctx, p)
}

// prober checks what a container created by a runtime can open.
type prober struct{ rt *Runtime }

// probe runs one self-test. The container runs as root without any capability, so that no
// mode of a device node masks the rules.
func (p prober) probe(ctx context.Context, ask cdi.Probe) (map[string]syscall.Errno, error) {
	ctx, cancel := context.WithTimeout(p.rt.with(ctx), probeTime)
	defer cancel()
	id := cluster.AttemptID{Job: probeJob, No: uint32(1 + ask.Root)}
	if err := p.endProbe(ctx, id); err != nil { // left by an agent that died in the middle
		return nil, err
	}
	out := p.rt.records.file(id, "probe")
	defer os.Remove(out)
	l := &launch.Launch{
		ID: id, Token: 1, Groups: []uint32{0}, Dir: "/", Stdout: out, Stderr: out, CDIDevices: ask.Names,
		Args: append([]string{jobside.Binary, jobside.ProbeArg}, ask.Open...), Env: []string{"PATH=/usr/bin:/bin"}, MemBytes: 256 << 20,
	}
	b := &binds{}
	paths := map[string]string{}
	for i, n := range ask.Others {
		at := probeOther + strconv.Itoa(i)
		paths[at] = n
		l.Args = append(l.Args, at)
		b.specs = append(b.specs, specs.Mount{Destination: at, Type: "bind", Source: n, Options: []string{"bind", "rw", "nosuid"}})
	}
	if ask.Root == cdi.ImageRoot {
		if err := p.probeInImage(ctx, l, b); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(out, nil, 0o600); err != nil {
		return nil, err
	}
	err := p.runProbe(ctx, l, b)
	if derr := p.endProbe(context.WithoutCancel(ctx), id); err == nil {
		err = derr
	}
	text, rerr := os.ReadFile(out)
	if err = errors.Join(err, rerr); err != nil {
		return nil, fmt.Errorf("%w; it said %.300q", err, text)
	}
	return readProbe(text, paths)
}

// runProbe runs a probe to its end.
func (p prober) runProbe(ctx context.Context, l *launch.Launch, b *binds) error {
	if err := p.rt.build.writeHelperSpec(l); err != nil {
		return err
	}
	if err := p.rt.createWith(ctx, l, b); err != nil {
		return err
	}
	if err := p.rt.Start(ctx, l.ID); err != nil {
		return err
	}
	for {
		t, err := p.rt.Inspect(ctx, l.ID)
		if err != nil {
			return err
		}
		if t.Phase == runtime.Stopped && t.ExitCode == 0 {
			return nil
		}
		if t.Phase != runtime.Running && t.Phase != runtime.Created {
			return fmt.Errorf("the probe ended as %s with code %d", t.Phase, t.ExitCode)
		}
		if !wait.Sleep(ctx, 10*time.Millisecond) {
			return fmt.Errorf("the probe did not end: %w", ctx.Err())
		}
	}
}

func (p prober) endProbe(ctx context.Context, id cluster.AttemptID) error {
	ctx, cancel := context.WithTimeout(ctx, callDeadline)
	defer cancel()
	if err := p.rt.Signal(ctx, id, syscall.SIGKILL); err != nil {
		return err
	}
	for {
		err := p.rt.Delete(ctx, id)
		if err == nil {
			return nil
		}
		if !wait.Sleep(ctx, 20*time.Millisecond) {
			return err
		}
	}
}

// readProbe parses what jobside.Probe wrote; others maps paths in the container to those of
// the node.
func readProbe(text []byte, others map[string]string) (map[string]syscall.Errno, error) {
	got := map[string]syscall.Errno{}
	sc := bufio.NewScanner(bytes.NewReader(text))
	for sc.Scan() {
		num, p, ok := strings.Cut(sc.Text(), " ")
		n, err := strconv.Atoi(num)
		if !ok || err != nil {
			return nil, fmt.Errorf("the probe said %.200q", sc.Text())
		}
		if node, ok := others[p]; ok {
			p = node
		}
		got[p] = syscall.Errno(n)
	}
	return got, sc.Err()
}

// probeInImage turns a probe into an image job: an image of empty directories, into which
// our binary and its libraries are mounted.
func (p prober) probeInImage(ctx context.Context, l *launch.Launch, b *binds) error {
	l.Image = probeImage
	if _, err := p.rt.client.GetImage(ctx, probeImage); err != nil {
		archive, err := emptyImage(probeImage)
		if err != nil {
			return err
		}
		if _, err := p.rt.client.Import(ctx, bytes.NewReader(archive)); err != nil {
			return fmt.Errorf("import the image of the self-test: %w", err)
		}
	}
	libs, err := libraries(p.rt.cfg.Inside)
	if err != nil {
		return err
	}
	libs[jobside.Binary] = p.rt.cfg.Inside
	for at, from := range libs {
		b.specs = append(b.specs, specs.Mount{Destination: at, Type: "bind", Source: from, Options: []string{"bind", "ro", "nosuid", "nodev"}})
	}
	l.Env = append(l.Env, "LD_LIBRARY_PATH="+jobside.Libraries)
	return nil
}

// libraries returns where a program's loader and libraries must be mounted, and from where.
// It finds them among those of this process, which is the same program. A static program
// has none.
func libraries(exe string) (map[string]string, error) {
	out := map[string]string{}
	f, err := elf.Open(exe)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		name, err := io.ReadAll(io.LimitReader(p.Open(), 4096))
		if err != nil {
			return nil, err
		}
		at := strings.TrimRight(string(name), "\x00")
		if out[at], err = filepath.EvalSymlinks(at); err != nil {
			return nil, err
		}
	}
	if len(out) == 0 {
		return out, nil
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(maps)) {
		fields := strings.Fields(line)
		if len(fields) != 6 || !strings.Contains(path.Base(fields[5]), ".so") {
			continue
		}
		lib, err := elf.Open(fields[5])
		if err != nil {
			continue
		}
		if so, err := lib.DynString(elf.DT_SONAME); err == nil && len(so) == 1 && !strings.Contains(so[0], "/") {
			out[path.Join(jobside.Libraries, so[0])] = fields[5]
		}
		_ = lib.Close() // it was only read
	}
	return out, nil
}

// emptyImage returns an archive with an image that contains only directories.
func emptyImage(name string) ([]byte, error) {
	var layer bytes.Buffer
	tw := tar.NewWriter(&layer)
	for _, d := range []string{"dev", "proc", "sys", "tmp", "run", "etc", "usr", "lib", "lib64", strings.TrimPrefix(jobside.Dir, "/")} {
		if err := tw.WriteHeader(&tar.Header{Name: d + "/", Typeflag: tar.TypeDir, Mode: 0o755}); err != nil {
			return nil, err
		}
	}
	if err := tw.Close(); err != nil {
		return nil, err
	}
	return ociArchive(name, goruntime.GOARCH, layer.Bytes())
}

// ociArchive creates an OCI archive of an image with one layer and no configuration beyond
// what the format requires.
func ociArchive(name, arch string, layer []byte) ([]byte, error) {
	digest := func(data []byte) string {
		sum := sha256.Sum256(data)
		return "sha256:" + hex.EncodeToString(sum[:])
	}
	desc := func(kind string, data []byte) map[string]any {
		return map[string]any{"mediaType": kind, "digest": digest(data), "size": len(data)}
	}
	config, err := json.Marshal(map[string]any{
		"architecture": arch, "os": "linux", "config": map[string]any{},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest(layer)}},
	})
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": desc("application/vnd.oci.image.config.v1+json", config),
		"layers": []any{desc("application/vnd.oci.image.layer.v1.tar", layer)},
	})
	if err != nil {
		return nil, err
	}
	entry := desc("application/vnd.oci.image.manifest.v1+json", manifest)
	entry["annotations"] = map[string]string{"io.containerd.image.name": name}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "manifests": []any{entry}})
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	tw := tar.NewWriter(&out)
	for _, f := range []struct {
		name string
		data []byte
	}{
		{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)}, {"index.json", index},
		{"blobs/sha256/" + digest(config)[7:], config}, {"blobs/sha256/" + digest(manifest)[7:], manifest},
		{"blobs/sha256/" + digest(layer)[7:], layer},
	} {
		if err := tw.WriteHeader(&tar.Header{Name: f.name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(f.data))}); err != nil {
			return nil, err
		}
		if _, err := io.Copy(tw, bytes.NewReader(f.data)); err != nil {
			return nil, err
		}
	}
	if err := tw.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
