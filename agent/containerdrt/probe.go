package containerdrt

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"github.com/berth-scheduler/berth/agent/jobside"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/berth-scheduler/berth/agent"
	"github.com/berth-scheduler/berth/agent/gpu/cdi"
	"github.com/berth-scheduler/berth/cluster"
)

// The self-test of device rules runs our own binary where a job would run, as
// "device-probe PATH...", in a container made in the same way.

const (
	// ProbeArg is the first argument with which a program must call ProbeMain.
	ProbeArg = "device-probe"
	// probeJob is no job's number: it is beyond what the cluster counts to.
	probeJob   = cluster.JobID(1<<63 - 1)
	probeImage = "berth.local/device-probe:1"
	probeTime  = 30 * time.Second
	probeOther = jobside.Dir + "/other" // card nodes are laid here
)

// ProbeMain opens each path as a job would and writes a line for each: the
// number of the error, 0 for none, and the path.
func ProbeMain(paths []string, w io.Writer) error {
	for _, p := range paths {
		fd, err := syscall.Open(p, syscall.O_RDWR|syscall.O_NONBLOCK|syscall.O_NOCTTY|syscall.O_CLOEXEC, 0)
		var errno syscall.Errno
		if err == nil {
			err = syscall.Close(fd)
		}
		if err != nil && !errors.As(err, &errno) {
			return err
		}
		if _, err := fmt.Fprintf(w, "%d %s\n", int(errno), p); err != nil {
			return err
		}
	}
	return nil
}

// ProbeDevices implements cdi.Prober. The container runs as root without any
// right, so that no mode of a device node stands in for the rules.
func (r *Runtime) ProbeDevices(ctx context.Context, p cdi.Probe) (map[string]syscall.Errno, error) {
	ctx, cancel := context.WithTimeout(r.with(ctx), probeTime)
	defer cancel()
	id := cluster.AttemptID{Job: probeJob, No: uint32(1 + p.Root)}
	if err := r.endProbe(ctx, id); err != nil { // of an agent that died in the middle
		return nil, err
	}
	out := r.file(id, "probe")
	defer os.Remove(out)
	l := &agent.Launch{
		ID: id, Token: 1, Groups: []uint32{0}, Dir: "/", Stdout: out, Stderr: out, CDIDevices: p.Names,
		Args: append([]string{jobside.Binary, ProbeArg}, p.Open...), Env: []string{"PATH=/usr/bin:/bin"}, MemBytes: 256 << 20,
	}
	b := &binds{}
	paths := map[string]string{}
	for i, n := range p.Others {
		at := probeOther + strconv.Itoa(i)
		paths[at] = n
		l.Args = append(l.Args, at)
		b.specs = append(b.specs, specs.Mount{Destination: at, Type: "bind", Source: n, Options: []string{"bind", "rw", "nosuid"}})
	}
	if p.Root == cdi.ImageRoot {
		if err := r.probeInImage(ctx, l, b); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(out, nil, 0o600); err != nil {
		return nil, err
	}
	err := r.runProbe(ctx, l, b)
	if derr := r.endProbe(context.WithoutCancel(ctx), id); err == nil {
		err = derr
	}
	text, rerr := os.ReadFile(out)
	if err = errors.Join(err, rerr); err != nil {
		return nil, fmt.Errorf("%w; it said %.300q", err, text)
	}
	return readProbe(text, paths)
}

// runProbe brings a probe to its end.
func (r *Runtime) runProbe(ctx context.Context, l *agent.Launch, b *binds) error {
	if err := r.writeHelperSpec(l); err != nil {
		return err
	}
	if err := r.createWith(ctx, l, b); err != nil {
		return err
	}
	if err := r.Start(ctx, l.ID); err != nil {
		return err
	}
	for {
		t, err := r.Inspect(ctx, l.ID)
		if err != nil {
			return err
		}
		if t.Phase == agent.TaskStopped && t.ExitCode == 0 {
			return nil
		}
		if t.Phase != agent.TaskRunning && t.Phase != agent.TaskCreated {
			return fmt.Errorf("the probe ended as %s with code %d", t.Phase, t.ExitCode)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the probe did not end: %w", ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (r *Runtime) endProbe(ctx context.Context, id cluster.AttemptID) error {
	ctx, cancel := context.WithTimeout(ctx, callDeadline)
	defer cancel()
	if err := r.Signal(ctx, id, syscall.SIGKILL); err != nil {
		return err
	}
	for {
		err := r.Delete(ctx, id)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// readProbe reads what ProbeMain wrote; others maps paths in the container to
// those of the node.
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

// probeInImage makes an image job of a probe: an image of empty directories,
// into which our binary and its libraries are mounted.
func (r *Runtime) probeInImage(ctx context.Context, l *agent.Launch, b *binds) error {
	l.Image = probeImage
	if _, err := r.client.GetImage(ctx, probeImage); err != nil {
		archive, err := emptyImage(probeImage)
		if err != nil {
			return err
		}
		if _, err := r.client.Import(ctx, bytes.NewReader(archive)); err != nil {
			return fmt.Errorf("import the image of the self-test: %w", err)
		}
	}
	libs, err := libraries(r.cfg.Logger)
	if err != nil {
		return err
	}
	libs[jobside.Binary] = r.cfg.Logger
	for at, from := range libs {
		b.specs = append(b.specs, specs.Mount{Destination: at, Type: "bind", Source: from, Options: []string{"bind", "ro", "nosuid", "nodev"}})
	}
	l.Env = append(l.Env, "LD_LIBRARY_PATH="+jobside.Libraries)
	return nil
}

// libraries says where a program's loader and libraries must be mounted, and
// from where. They are found among those of this process, which is the same
// program. A static program has none.
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

// emptyImage is an archive with an image of nothing but directories.
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
	return ociArchive(name, runtime.GOARCH, layer.Bytes())
}
