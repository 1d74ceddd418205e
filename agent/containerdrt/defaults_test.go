package containerdrt

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/runtime"
)

// hostile is an image that asks for all that an image must not get.
var hostile = recipe{shell: true, config: map[string]any{
	"User": "root", "WorkingDir": "/root", "Entrypoint": []string{"/bin/false"}, "Cmd": []string{"/bin/false"}, "StopSignal": "SIGKILL",
	"Volumes": map[string]any{"/vol": struct{}{}, "/etc": struct{}{}}, "ExposedPorts": map[string]any{"22/tcp": struct{}{}},
	"Env": []string{
		"PATH=/bin", "LD_PRELOAD=/evil.so", "LD_LIBRARY_PATH=/evil", "NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=all",
		"CUDA_VISIBLE_DEVICES=0", "BERTH_JOB_ID=1", "IMAGE_ONLY=1", "=x", "",
	},
	"Labels": map[string]string{"containerd.io/restart.status": "running", "io.containerd.image.config.stop-signal": "9", labelToken: "9"},
}, entries: []tar.Header{
	{Name: "place/", Typeflag: tar.TypeDir}, {Name: "link", Typeflag: tar.TypeSymlink, Linkname: "/place"}, {Name: "file"},
	{Name: "vol/", Typeflag: tar.TypeDir}, {Name: "vol/own"},
	{Name: "etc/passwd"}, {Name: "etc/group"}, {Name: "home/user/", Typeflag: tar.TypeDir},
}}

func (b *bench) load(name string, r recipe) string {
	b.Helper()
	archive := build(b, r).oci(b, name)
	if _, err := b.rt.client.Import(b.rt.with(b.Context()), bytes.NewReader(archive)); err != nil {
		b.Fatal(err)
	}
	return name
}

// says runs a program in a container and returns the lines it printed. What copies the
// output of an image's job may be behind its end: a script says when it is whole.
func (b *bench) says(l *launch.Launch) []string {
	b.Helper()
	const whole = "that is all"
	script := len(l.Args) > 2 && l.Args[len(l.Args)-2] == "-c"
	if script {
		l.Args[len(l.Args)-1] += "\ncode=$?; echo " + whole + "; exit $code"
	}
	b.start(l)
	if task := b.wait(l.ID); task.Phase != runtime.Stopped || task.ExitCode != 0 {
		b.Errorf("%q: got %+v", l.Args, task)
	}
	if !script {
		return b.lines(l, 1)
	}
	for n := 1; ; n++ {
		if got := b.lines(l, n); got[len(got)-1] == whole {
			return got[:len(got)-1]
		}
	}
}

func (b *bench) refused(l *launch.Launch) *launch.Error {
	b.Helper()
	err := b.rt.Create(b.Context(), l)
	if err == nil {
		err = b.rt.Start(b.Context(), l.ID)
	}
	le, ok := errors.AsType[*launch.Error](err)
	if !ok {
		b.Fatalf("launch of %q: got %v, want a launch error", l.Args, err)
	}
	if err := b.rt.Delete(b.Context(), l.ID); err != nil {
		b.Errorf("delete what could not start: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(b.dir, "rt", "*", l.ID.String())); err != nil || len(left) > 0 {
		b.Errorf("left behind: %q (%v)", left, err)
	}
	return le
}

// TestDefaults looks at what a job is given from inside its container.
func TestDefaults(t *testing.T) {
	t.Parallel()
	require(t)
	b := newBench(t)
	image := b.load("berth.test/hostile:v1", hostile)
	for _, c := range []struct {
		name string
		run  func(*testing.T, *bench, string)
	}{
		{"identity and rights", testRights},
		{"nothing from the image", testNothingFromImage},
		{"masked and read-only", testMasked},
		{"system calls", testSystemCalls},
		{"sizes and limits", testSizes},
		{"policy of the node", testPolicy},
		{"hostile roots", testHostileRoots},
		{"mounts", testBinds},
		{"a source that is swapped", testSwapped},
		{"setuid programs", testSetuid},
		{"processes of others", testOthersProcesses},
		{"working directory", testImageWorkDir},
	} {
		t.Run(c.name, func(t *testing.T) {
			sub := *b
			sub.TB = t
			c.run(t, &sub, image)
		})
	}
	if left, err := filepath.Glob(filepath.Join(b.dir, "rt", "binds", "*")); err != nil || len(left) > 0 {
		t.Errorf("staged mounts are left: %q (%v)", left, err)
	}
}

var noRights = []string{
	"CapInh:\t0000000000000000", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000",
	"CapAmb:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2",
}

func testRights(t *testing.T, b *bench, image string) {
	const script = `grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status; id -u; id -g; id -G; ulimit -c; cat /proc/self/oom_score_adj`
	for i, img := range []string{image, ""} {
		sh := "/bin/busybox"
		l := b.job(100+i, img, sh, "sh", "-c", strings.ReplaceAll(strings.ReplaceAll(script, "grep", sh+" grep"), "id -", sh+" id -"))
		l.Groups = []uint32{65534, 4711}
		want := append(slices.Clone(noRights), "65534", "65534", "65534 4711", "0", "0")
		if diff := cmp.Diff(want, b.says(l)); diff != "" {
			t.Errorf("image %q (-want +got):\n%s", img, diff)
		}
	}
}

func testNothingFromImage(t *testing.T, b *bench, image string) {
	l := b.job(110, image, "/bin/busybox", "sh", "-c", "env; echo --; pwd; ls /vol; ls -d /vol/own; /bin/busybox grep -c ' /vol ' /proc/self/mounts || :")
	l.Env = []string{"HOME=/home/user"}
	got := b.says(l)
	cut := slices.Index(got, "--")
	if cut < 0 {
		t.Fatalf("printed %q", got)
	}
	env := slices.Sorted(slices.Values(got[:cut]))
	if diff := cmp.Diff([]string{"HOME=/home/user", "PATH=/bin", "PWD=/", "SHLVL=1"}, env); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"/", "own", "/vol/own", "0"}, got[cut+1:]); diff != "" {
		t.Errorf("directory and volumes (-want +got):\n%s", diff)
	}
	c, err := b.rt.client.LoadContainer(b.rt.with(t.Context()), l.ID.String())
	if err != nil {
		t.Fatal(err)
	}
	info, err := c.Info(b.rt.with(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{labelToken: "7"}, info.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	spec, err := c.Spec(b.rt.with(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	if spec.Hooks != nil || len(spec.Annotations) > 0 {
		t.Errorf("hooks %+v and annotations %v, want none", spec.Hooks, spec.Annotations)
	}
}

func testMasked(t *testing.T, b *bench, image string) {
	const script = `for f in /proc/timer_list /proc/keys /proc/kcore /proc/acpi /proc/scsi /sys/firmware; do
  [ -e $f ] || continue
  if [ -d $f ]; then [ -z "$(ls $f)" ] || echo shown $f; else [ -z "$(head -c1 $f 2>/dev/null)" ] || echo shown $f; fi
done
busybox awk '$2=="/sys"||$2=="/proc/sys"{split($4,o,",");print $2,o[1]}' /proc/self/mounts | busybox sort -u
ls /dev | busybox grep -v core | busybox tr '\n' ' '; echo`
	for i, img := range []string{image, ""} {
		l := b.job(120+i, img, "/bin/busybox", "sh", "-c", script)
		l.Env = []string{"PATH=/bin"}
		want := []string{"/proc/sys ro", "/sys ro", "fd full mqueue null ptmx pts random shm stderr stdin stdout tty urandom zero "}
		if diff := cmp.Diff(want, b.says(l)); diff != "" {
			t.Errorf("image %q (-want +got):\n%s", img, diff)
		}
	}
}

// probeArg makes the test binary try what no job may, from inside a container.
const probeArg = "probe-system-calls"

// forbidden are calls that the profile denies whatever rights a process has.
var forbidden = map[string]func() syscall.Errno{
	"add_key":         raw(unix.SYS_ADD_KEY),
	"keyctl":          raw(unix.SYS_KEYCTL),
	"request_key":     raw(unix.SYS_REQUEST_KEY),
	"bpf":             raw(unix.SYS_BPF),
	"userfaultfd":     raw(unix.SYS_USERFAULTFD),
	"perf_event_open": raw(unix.SYS_PERF_EVENT_OPEN),
	"io_uring_setup":  raw(unix.SYS_IO_URING_SETUP),
	"mount":           raw(unix.SYS_MOUNT),
	"unshare user":    raw(unix.SYS_UNSHARE, unix.CLONE_NEWUSER),
	"setns":           raw(unix.SYS_SETNS),
	"open_by_handle":  raw(unix.SYS_OPEN_BY_HANDLE_AT),
	"init_module":     raw(unix.SYS_INIT_MODULE),
	"kexec_load":      raw(unix.SYS_KEXEC_LOAD),
	"reboot":          raw(unix.SYS_REBOOT),
	"pivot_root":      raw(unix.SYS_PIVOT_ROOT),
	"move_mount":      raw(unix.SYS_MOVE_MOUNT),
}

func raw(nr uintptr, arg ...uintptr) func() syscall.Errno {
	var a [3]uintptr
	copy(a[:], arg)
	return func() syscall.Errno { _, _, e := unix.RawSyscall(nr, a[0], a[1], a[2]); return e }
}

// probe prints each call that was not denied.
func probe() {
	for name, call := range forbidden {
		if e := call(); e != unix.EPERM {
			fmt.Println("allowed", name, int(e))
		}
	}
	fmt.Println("probed", len(forbidden))
}

func testSystemCalls(t *testing.T, b *bench, image string) {
	exe := filepath.Join(b.out, "probe")
	bin, err := os.ReadFile(os.Args[0])
	if err == nil {
		err = os.WriteFile(exe, bin, 0o755)
	}
	if err := errors.Join(err, os.Chmod(exe, 0o755)); err != nil {
		t.Fatal(err)
	}
	if got, want := b.says(b.job(130, "", exe, probeArg)), "probed "+strconv.Itoa(len(forbidden)); !slices.Equal(got, []string{want}) {
		t.Errorf("host job: got %q, want %q", got, want)
	}
	l := b.job(131, image, "/bin/busybox", "sh", "-c", `
busybox mount -t tmpfs x /tmp 2>/dev/null && echo mounted
busybox mknod /tmp/sda b 8 0 2>/dev/null && echo made a device
busybox unshare -U true 2>/dev/null && echo new user namespace
busybox chown 0 /tmp 2>/dev/null && echo changed owner
busybox cat /proc/1/root/etc/shadow 2>/dev/null && echo read shadow
busybox su -c id 2>/dev/null && echo became root
/bin/busybox id -u`)
	if got := b.says(l); !slices.Equal(got, []string{"65534"}) {
		t.Errorf("image job: got %q", got)
	}
}

func testSizes(t *testing.T, b *bench, image string) {
	l := b.job(140, image, "/bin/busybox", "sh", "-c", `busybox df -k /tmp /dev/shm | busybox awk 'NR>1{print $6,$2}'; ulimit -n
busybox dd if=/dev/zero of=/dev/shm/x bs=1M count=200 2>/dev/null || echo full; sleep 1000`)
	l.MemBytes, l.CPUMilli = 256<<20, 1500
	b.rt.cfg.Policy.HardCPU = true
	defer func() { b.rt.cfg.Policy.HardCPU = false }()
	b.start(l)
	want := []string{"/tmp 1048576", "/dev/shm 131072", strconv.FormatUint(fileLimit(defaultFiles), 10), "full"}
	if diff := cmp.Diff(want, b.lines(l, 4)); diff != "" {
		t.Errorf("sizes (-want +got):\n%s", diff)
	}
	if got, err := b.rt.group(l.ID).Limits(); err != nil || got.Pids != defaultPids || got.MemBytes != 256<<20 || got.CPUQuotaMilli != 1500 {
		t.Errorf("control group: got %+v, %v", got, err)
	}
	if err := b.rt.Signal(t.Context(), l.ID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.wait(l.ID)
}

// testPolicy has the choices of a node reach a job.
func testPolicy(t *testing.T, b *bench, image string) {
	old := b.rt.cfg.Policy
	defer func() { b.rt.cfg.Policy = old }()
	const script = `busybox awk 'NR>2{sub(":","",$1);print "net",$1}' /proc/net/dev | busybox sort
touch /place/x 2>/dev/null && echo wrote; touch /tmp/x && echo tmp; busybox df -k /tmp | busybox awk 'NR>1{print $2}'; ulimit -n`
	run := func(n int) []string {
		l := b.job(n, image, "/bin/busybox", "sh", "-c", script)
		l.UID, l.GID = 0, 0 // would be allowed to write
		return b.says(l)
	}
	if got := run(150); !slices.Contains(got, "wrote") || len(got) < 5 {
		t.Errorf("without a policy: got %q, want the node's interfaces and a root to write to", got)
	}
	b.rt.cfg.Policy.Network, b.rt.cfg.Policy.ReadOnlyRoot, b.rt.cfg.Policy.TmpBytes, b.rt.cfg.Policy.Files = NetNone, true, 4<<20, 128
	if diff := cmp.Diff([]string{"net lo", "tmp", "4096", "128"}, run(151)); diff != "" {
		t.Errorf("strict (-want +got):\n%s", diff)
	}
}

func testHostileRoots(t *testing.T, b *bench, _ string) {
	for i, c := range []struct {
		name, want string
		entry      tar.Header
	}{
		{"dev", "/dev of the image is a symbolic link", tar.Header{Name: "dev", Typeflag: tar.TypeSymlink, Linkname: "/etc"}},
		{"proc", "/proc of the image is a symbolic link", tar.Header{Name: "proc", Typeflag: tar.TypeSymlink, Linkname: "../../.."}},
		{"sys", "/sys of the image is a file", tar.Header{Name: "sys"}},
		{"shm", "/dev/shm of the image is a symbolic link", tar.Header{Name: "dev/shm", Typeflag: tar.TypeSymlink, Linkname: "/"}},
		{"tmp", "/tmp of the image is a symbolic link", tar.Header{Name: "tmp", Typeflag: tar.TypeSymlink, Linkname: "/proc"}},
	} {
		img := b.load("berth.test/root:"+c.name, recipe{shell: true, entries: []tar.Header{c.entry}})
		if le := b.refused(b.job(160+i, img, "/bin/sh", "-c", "true")); le.Reason != "IMAGE" || !strings.Contains(le.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, le, c.want)
		}
	}
	// A layer cannot leave its root: links lead inside, and .. goes nowhere.
	img := b.load("berth.test/root:escape", recipe{shell: true, entries: []tar.Header{
		{Name: "out", Typeflag: tar.TypeSymlink, Linkname: b.dir}, {Name: "out/evil"}, {Name: "../../../../.." + b.dir + "/evil2"},
	}})
	if got := b.says(b.job(170, img, "/bin/busybox", "sh", "-c", "echo ran")); !slices.Equal(got, []string{"ran"}) {
		t.Errorf("escaping layer: got %q", got)
	}
	for _, name := range []string{"evil", "evil2"} {
		if _, err := os.Lstat(filepath.Join(b.dir, name)); err == nil {
			t.Errorf("a layer wrote %s outside of its root", name)
		}
	}
}

func testBinds(t *testing.T, b *bench, image string) {
	home := filepath.Join(b.out, "home") // 0700, the user's: as root_squash shows it to root
	err := errors.Join(os.Mkdir(home, 0o700), os.WriteFile(filepath.Join(home, "data"), []byte("mine\n"), 0o600),
		os.Chown(home, 65534, 65534), os.Chown(filepath.Join(home, "data"), 65534, 65534),
		os.Symlink("home", filepath.Join(b.out, "link")), os.Symlink("/etc", filepath.Join(home, "etc")),
		os.Mkdir(filepath.Join(b.out, "roots"), 0o700), os.Mkdir(filepath.Join(b.out, "roots/in"), 0o755),
		unix.Mkfifo(filepath.Join(b.out, "fifo"), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	l := b.job(180, image, "/bin/busybox", "sh", "-c", `cat /home/user/data /one; pwd; echo new >/home/user/new; { echo x >>/one; } 2>/dev/null || echo readonly
busybox awk '$2=="/home/user"||$2=="/one"{n=split($4,o,",");s=$2;for(i=1;i<=n;i++)if(o[i]~/^(rw|ro|nosuid|nodev)$/)s=s" "o[i];print s}' /proc/self/mounts`)
	l.Dir = "/home/user"
	l.Mounts = []launch.Mount{{Source: home, Target: "/home/user"}, {Source: home + "/data", Target: "/one", ReadOnly: true}}
	want := []string{"mine", "mine", "/home/user", "readonly", "/home/user rw nosuid nodev", "/one ro nosuid nodev"}
	if diff := cmp.Diff(want, b.says(l)); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
	if st, err := os.Stat(home + "/new"); err != nil || st.Sys().(*syscall.Stat_t).Uid != 65534 {
		t.Errorf("what the job wrote: %v, %v", st, err)
	}
	for i, c := range []struct {
		name, source, target, want string
	}{
		{"outside the list", "/opt", "/x", "mounts only what lies below"},
		{"the node's root", "/", "/x", "mounts only"},
		{"dots", b.out + "/../../etc", "/x", "no .. in it"},
		{"beside the list", b.out + "2", "/x", "mounts only"},
		{"relative", "home", "/x", "absolute"},
		{"missing", b.out + "/none", "/x", "no such file"},
		{"a link", b.out + "/link", "/x", "is a symbolic link"},
		{"over a link", b.out + "/home/etc/ssh", "/x", "is a symbolic link"},
		{"another user's", b.out + "/roots/in", "/x", "permission denied"},
		{"a pipe", b.out + "/fifo", "/x", "neither a directory nor a plain file"},
		{"over proc", home, "/proc/self", "would hide /proc"},
		{"over dev", home, "/dev", "would hide /dev"},
		{"over the root", home, "/", "other than /"},
		{"over etc", home, "/etc", "would hide /etc/hosts"},
		{"target with dots", home, "/x/../dev", "no .. in it"},
	} {
		l := b.job(181+i, image, "/bin/busybox", "true")
		l.Mounts = []launch.Mount{{Source: c.source, Target: c.target}}
		if le := b.refused(l); le.Reason != "MOUNT" || le.Code != 125 || !strings.Contains(le.Error(), c.want) {
			t.Errorf("%s: got %v, want MOUNT and %q", c.name, le, c.want)
		}
	}
	l = b.job(199, image, "/bin/busybox", "true")
	l.Mounts = []launch.Mount{{Source: home, Target: "/x"}, {Source: home, Target: "/x/"}}
	if le := b.refused(l); !strings.Contains(le.Error(), "named twice") {
		t.Errorf("same target twice: got %v", le)
	}
}

func testImageWorkDir(t *testing.T, b *bench, image string) {
	for i, c := range []struct{ dir, want, says string }{
		{"/place", "/place", ""},
		{"/link", "/place", ""},
		{"/tmp", "/tmp", ""},
		{"/none", "", "/none does not exist in the container"},
		{"/file", "", "/file is not a directory"},
		{"/tmp/x", "", "begins empty"},
		{"/proc/self/fd/7", "", "may not lie under /proc"},
		{"/place/../../..", "/", ""},
		{"place", "", "not an absolute path"},
		{b.out + "/none", "", "does not exist"},
	} {
		l := b.job(200+i, image, "/bin/busybox", "pwd", "-P")
		l.Dir = c.dir
		l.Mounts = []launch.Mount{{Source: b.out, Target: b.out}}
		if c.says == "" {
			if got := b.says(l); !slices.Equal(got, []string{c.want}) {
				t.Errorf("%s: got %q, want %q", c.dir, got, c.want)
			}
			continue
		}
		if le := b.refused(l); le.Reason != "WORKDIR" || !strings.Contains(le.Error(), c.says) {
			t.Errorf("%s: got %v, want WORKDIR and %q", c.dir, le, c.says)
		}
	}
}
