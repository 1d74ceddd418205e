package imagecmd_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/agent/containerdrt"
	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/frame"
	"github.com/berth-scheduler/berth/cmd/internal/cli/imagecmd"
)

// fakeImages is the containerd of a node without one.
type fakeImages struct {
	calls []string
	list  []containerdrt.Image
	err   error
}

func (f *fakeImages) call(format string, args ...any) ([]containerdrt.Image, error) {
	f.calls = append(f.calls, fmt.Sprintf(format, args...))
	if f.err != nil {
		return nil, f.err
	}
	return f.list, nil
}

func (f *fakeImages) List(context.Context) ([]containerdrt.Image, error) { return f.call("list") }

func (f *fakeImages) Import(_ context.Context, r io.Reader, name string) ([]containerdrt.Image, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	return f.call("import %q %q", text, name)
}

func (f *fakeImages) Pull(_ context.Context, ref string) (containerdrt.Image, error) {
	_, err := f.call("pull %s", ref)
	return containerdrt.Image{Name: ref, Digest: "sha256:" + strings.Repeat("ab", 32), Bytes: 5 << 20}, err
}

func (f *fakeImages) Prune(_ context.Context, d time.Duration) ([]containerdrt.Image, error) {
	return f.call("prune %s", d)
}

func (f *fakeImages) Close() error { f.calls = append(f.calls, "close"); return nil }

// runImage executes an image command on a fake.
func runImage(w *clitest.World, f *fakeImages, args ...string) (code int, msg string) {
	w.Out.Reset()
	w.Env.Out = nil
	w.Env.Start()
	cmd := imagecmd.NewCommandOn(w.Env, func(_ context.Context, cfg containerdrt.ImagesConfig) (imagecmd.ImageStore, error) {
		f.calls = append(f.calls, "open "+cfg.Address+" "+cfg.Namespace)
		if errors.Is(f.err, containerdrt.ErrNoContainerd) {
			return nil, f.err
		}
		return f, nil
	})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	frame.WrapUsage(cmd)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(w.T.Context())
	if ferr := w.Env.Flush(); err == nil {
		err = ferr
	}
	return console.Classify(w.T.Context(), err)
}

var someImages = []containerdrt.Image{
	{Name: "docker.io/lab/jax:1", Digest: "sha256:" + strings.Repeat("12", 32), Bytes: 3 << 30, Used: clitest.Now.Add(-72 * time.Hour), Containers: 2},
	{Name: "site.test/torch:2.9", Digest: "sha256:" + strings.Repeat("34", 32), Bytes: 512 << 20, Used: clitest.Now},
}

func TestImageCommands(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "a.tar")
	if err := os.WriteFile(file, []byte("archive"), 0o600); err != nil {
		t.Fatal(err)
	}
	const opened = "open /run/containerd/containerd.sock berth"
	for _, c := range []struct {
		name  string
		args  []string
		calls []string
		out   string
	}{
		{"list", []string{"list"}, []string{opened, "list", "close"},
			"NAME                 DIGEST                  SIZE  JOBS  LAST USED\n" +
				"docker.io/lab/jax:1  sha256:121212121212  3.0 GiB     2  " + clitest.Now.Add(-72*time.Hour).UTC().Format("2006-01-02 15:04") + "\n" +
				"site.test/torch:2.9  sha256:343434343434  512 MiB     0  " + clitest.Now.UTC().Format("2006-01-02 15:04") + "\n"},
		{"names", []string{"ls", "-o", "name"}, []string{opened, "list", "close"}, "docker.io/lab/jax:1\nsite.test/torch:2.9\n"},
		{"another containerd", []string{"list", "-o", "name", "--socket", "/s", "--namespace", "x"}, []string{"open /s x", "list", "close"}, "docker.io/lab/jax:1\nsite.test/torch:2.9\n"},
		{"pull two", []string{"pull", "r.test/a:1", "r.test/b:1"}, []string{opened, "pull r.test/a:1", "pull r.test/b:1", "close"},
			"pulled r.test/a:1 sha256:" + strings.Repeat("ab", 32) + " (5 MiB)\npulled r.test/b:1 sha256:" + strings.Repeat("ab", 32) + " (5 MiB)\n"},
		{"import a file", []string{"import", file}, []string{opened, `import "archive" ""`, "close"},
			"imported docker.io/lab/jax:1 sha256:" + strings.Repeat("12", 32) + " (3.0 GiB)\nimported site.test/torch:2.9 sha256:" + strings.Repeat("34", 32) + " (512 MiB)\n"},
		{"prune", []string{"prune", "--unused", "720h", "--yes"}, []string{opened, "prune 720h0m0s", "close"},
			"deleted docker.io/lab/jax:1 sha256:" + strings.Repeat("12", 32) + " (3.0 GiB)\ndeleted site.test/torch:2.9 sha256:" + strings.Repeat("34", 32) + " (512 MiB)\n2 images deleted, 3.5 GiB\n"},
	} {
		w, f := clitest.NewWorld(t), &fakeImages{list: someImages}
		if code, msg := runImage(w, f, c.args...); code != console.ExitDone {
			t.Errorf("%s: exit %d, %s", c.name, code, msg)
		}
		if diff := cmp.Diff(c.calls, f.calls); diff != "" {
			t.Errorf("%s: calls (-want +got):\n%s", c.name, diff)
		}
		if diff := cmp.Diff(c.out, w.Out.String()); diff != "" {
			t.Errorf("%s: output (-want +got):\n%s", c.name, diff)
		}
	}
	w, f := clitest.NewWorld(t), &fakeImages{list: someImages[:1]}
	w.Env.Stdin = strings.NewReader("piped")
	if code, msg := runImage(w, f, "import", "-", "--name", "n.test/x:1"); code != console.ExitDone || f.calls[1] != `import "piped" "n.test/x:1"` {
		t.Errorf("import from standard input: exit %d, %s, calls %q", code, msg, f.calls)
	}
	if code, _ := runImage(w, f, "list", "-o", "json"); code != console.ExitDone || !strings.Contains(w.Out.String(), `"bytes": 3221225472`) {
		t.Errorf("list -o json: exit %d, %s", code, w.Out.String())
	}
}

func TestImageCommandsRefuse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		args []string
		err  error
		code int
		want string
	}{
		{"no containerd", []string{"list"}, fmt.Errorf("%w at /x", containerdrt.ErrNoContainerd), console.ExitUnavailable, "cannot be reached"},
		{"a launch error", []string{"pull", "r.test/x:1"}, &launch.Error{Code: 125, Reason: "IMAGE", Err: errors.New("not there")}, console.ExitFailed, "not there"},
		{"prune unasked", []string{"prune"}, nil, console.ExitUsage, "--yes"},
		{"prune the future", []string{"prune", "--yes", "--unused", "-1h"}, nil, console.ExitUsage, "want 0 or more"},
		{"no file", []string{"import"}, nil, console.ExitUsage, "file is missing"},
		{"no such file", []string{"import", "/no/such.tar"}, nil, console.ExitFailed, "no such file"},
		{"no image", []string{"pull"}, nil, console.ExitUsage, "image is missing"},
		{"format", []string{"list", "-o", "xml"}, nil, console.ExitUsage, "want one of"},
	} {
		w, f := clitest.NewWorld(t), &fakeImages{err: c.err}
		code, msg := runImage(w, f, c.args...)
		if code != c.code || !strings.Contains(msg, c.want) || strings.HasPrefix(msg, "IMAGE:") {
			t.Errorf("%s: exit %d, %q, want %d and %q", c.name, code, msg, c.code, c.want)
		}
	}
}
