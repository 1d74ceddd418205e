package cdi

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	specs "tags.cncf.io/container-device-interface/specs-go"
)

func injector(t testing.TB) *Injector {
	t.Helper()
	in, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func recorded(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestRecorded(t *testing.T) {
	for name, version := range map[string]string{"h100.yaml": "580.65.06", "old.json": "525.147.05"} {
		spec, err := injector(t).Parse([]byte(recorded(t, name)))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := specVersion(spec); got != version {
			t.Errorf("%s: is of driver %q, want %q", name, got, version)
		}
	}
}

// small is a specification into whose parts the tests put what is hostile.
func small(device, edits string) string {
	return "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n" + device + "\ncontainerEdits:\n" + edits
}

const (
	card  = "- {name: GPU-1, containerEdits: {deviceNodes: [{path: /dev/nvidia0}]}}"
	nodes = "  deviceNodes: [{path: /dev/nvidiactl}]"
)

func TestHostile(t *testing.T) {
	if _, err := injector(t).Parse([]byte(small(card, nodes))); err != nil {
		t.Fatalf("the harmless one: %v", err)
	}
	node := func(s string) string { return small(card, "  deviceNodes: [{"+s+"}]") }
	mount := func(s string) string { return small(card, "  mounts: [{"+s+"}]") }
	hook := func(path, args string) string {
		return small(card, "  hooks: [{hookName: createContainer, path: "+path+", args: ["+args+"]}]")
	}
	const own = "/usr/bin/nvidia-cdi-hook"
	for name, c := range map[string]struct{ spec, want string }{
		"empty":                       {"", "EOF"},
		"null":                        {"null", "is empty"},
		"not YAML":                    {"{", "unmarshal"},
		"unknown field":               {small(card, nodes) + "\nprivileged: true", "privileged"},
		"another vendor":              {strings.Replace(small(card, nodes), "nvidia.com/gpu", "evil.com/gpu", 1), `kind is "evil.com/gpu", want nvidia.com/gpu`},
		"another class":               {strings.Replace(small(card, nodes), "nvidia.com/gpu", "nvidia.com/pva", 1), "kind is"},
		"unknown version":             {strings.Replace(small(card, nodes), "0.5.0", "9.0.0", 1), "cdiVersion"},
		"no version":                  {strings.Replace(small(card, nodes), "0.5.0", `""`, 1), "cdiVersion"},
		"no devices":                  {"cdiVersion: 0.5.0\nkind: nvidia.com/gpu\n", "0 devices"},
		"a name twice":                {small(card+"\n"+card, nodes), `device "GPU-1" is there twice`},
		"one card, two names":         {small(card+"\n"+strings.Replace(card, "GPU-1", "GPU-2", 1), nodes), "devices GPU-1 and GPU-2 are both /dev/nvidia0"},
		"two cards, one name":         {small("- {name: GPU-1, containerEdits: {deviceNodes: [{path: /dev/nvidia0}, {path: /dev/nvidia1}]}}", nodes), "GPU-1 has 2 nodes of cards"},
		"a name without a card":       {small("- {name: GPU-1, containerEdits: {deviceNodes: [{path: /dev/nvidiactl}]}}", nodes), "GPU-1 has 0 nodes of cards"},
		"a name with a space":         {small(strings.Replace(card, "GPU-1", `"GPU 1"`, 1), nodes), "no name of a device"},
		"every card for all":          {node("path: /dev/nvidia1"), "would be given to every job"},
		"a disk":                      {node("path: /dev/sda"), `"/dev/sda" is none of the NVIDIA driver's`},
		"all of memory":               {node("path: /dev/mem"), "none of the NVIDIA driver's"},
		"a disk as a card":            {node("path: /dev/nvidiactl, hostPath: /dev/sda"), "is /dev/sda on the node, want the same name"},
		"memory as a switch":          {node("path: /dev/nvidiactl, hostPath: /dev/mem"), "want the same name"},
		"another card behind a name":  {small("- {name: GPU-1, containerEdits: {deviceNodes: [{path: /dev/nvidia0, hostPath: /dev/nvidia1}]}}", nodes), "want the same name"},
		"a block device":              {node("path: /dev/nvidiactl, type: b"), `of type "b"`},
		"a pipe":                      {node("path: /dev/nvidiactl, type: p"), `of type "p"`},
		"not below /dev":              {node("path: /etc/nvidia0"), "none of the NVIDIA driver's"},
		"a path with dots":            {node("path: /dev/../dev/nvidiactl"), "without dots"},
		"a host path with dots":       {node("path: /dev/nvidiactl, hostPath: /dev/nvidia/../sda"), "without dots"},
		"a relative path":             {node("path: dev/nvidiactl"), "without dots"},
		"another user's node":         {node("path: /dev/nvidiactl, uid: 1000"), "belong to another user"},
		"odd permissions":             {node("path: /dev/nvidiactl, permissions: rwx"), "permissions"},
		"mount of /":                  {mount("hostPath: /, containerPath: /host"), "none of the driver's files"},
		"mount of / on a library":     {mount("hostPath: /, containerPath: /usr/lib/libcuda.so.1"), "none of the driver's files"},
		"mount of /etc":               {mount("hostPath: /etc/shadow, containerPath: /usr/lib/libcuda.so.1"), "none of the driver's files"},
		"mount of all of /usr":        {mount("hostPath: /usr, containerPath: /usr"), "none of the driver's files"},
		"mount over /usr/lib":         {mount("hostPath: /usr/lib, containerPath: /usr/lib"), "none of the driver's files"},
		"mount over /proc":            {mount("hostPath: /usr/lib/a/b, containerPath: /proc/self"), "none of the driver's files"},
		"mount of /dev":               {mount("hostPath: /dev/sda, containerPath: /usr/lib/a/b"), "none of the driver's files"},
		"mount of a socket":           {mount("hostPath: /run/containerd/containerd.sock, containerPath: /run/nvidia-persistenced/socket"), "none of the driver's files"},
		"a library where sockets are": {mount("hostPath: /usr/lib/a/b, containerPath: /run/nvidia-persistenced/x"), "none of the driver's files"},
		"mount with dots":             {mount("hostPath: /usr/lib/../../etc/shadow, containerPath: /usr/lib/a/b"), "without dots"},
		"mount with dots inside":      {mount("hostPath: /usr/lib/a/b, containerPath: /usr/lib/../../etc/b"), "without dots"},
		"mount of another type":       {mount("hostPath: /usr/lib/a/b, containerPath: /usr/lib/a/b, type: overlay"), "of type"},
		"mount that is shared":        {mount("hostPath: /usr/lib/a/b, containerPath: /usr/lib/a/b, options: [rshared]"), "option"},
		"mount with dev":              {mount("hostPath: /usr/lib/a/b, containerPath: /usr/lib/a/b, options: [dev]"), "option"},
		"hook of somebody's":          {hook("/tmp/evil", "x, update-ldcache"), `hook "/tmp/evil" is none of the toolkit's`},
		"hook by name":                {hook("nvidia-cdi-hook", "x, update-ldcache"), "none of the toolkit's"},
		"hook beside the toolkit's":   {hook("/usr/bin/../bin/nvidia-cdi-hook", "x, update-ldcache"), "none of the toolkit's"},
		"the legacy hook":             {hook("/usr/bin/nvidia-container-runtime-hook", "nvidia-container-runtime-hook, prestart"), "none of the toolkit's"},
		"hook without a command":      {hook(own, "x"), "no command"},
		"hook with another command":   {hook(own, "x, install"), `runs "install"`},
		"hook with a flag":            {hook(own, "x, update-ldcache, --exec, /tmp/evil"), `argument "--exec"`},
		"hook with another ldconfig":  {hook(own, "x, update-ldcache, --ldconfig-path, /tmp/evil"), "want /sbin/ldconfig"},
		"hook with half a flag":       {hook(own, "x, update-ldcache, --folder"), "without a value"},
		"hook for a folder with dots": {hook(own, "x, update-ldcache, --folder, /usr/../etc"), "without dots"},
		"link to where it will":       {hook(own, "x, create-symlinks, --link, a::../../etc/passwd"), "absolute link"},
		"hook with a new line":        {hook(own, `x, update-ldcache, --folder, "/usr/lib\n/etc"`), "characters"},
		"hook at another time":        {small(card, "  hooks: [{hookName: createRuntime, path: "+own+", args: [x, update-ldcache]}]"), "want createContainer"},
		"preloaded library":           {small(card, "  env: [LD_PRELOAD=/tmp/evil.so]"), `"LD_PRELOAD=/tmp/evil.so", want NVIDIA_NAME=value`},
		"path of programs":            {small(card, "  env: [PATH=/tmp]"), "want NVIDIA_NAME=value"},
		"everything visible":          {small(card, "  env: [NVIDIA_VISIBLE_DEVICES=all]"), "want void"},
		"variable with a new line":    {small(card, `  env: ["NVIDIA_X=a\nLD_PRELOAD=b"]`), "characters"},
		"groups":                      {strings.Replace(small(card, "  additionalGids: [0, 27]"), "0.5.0", "0.7.0", 1), "adds groups"},
		"network":                     {strings.Replace(small(card, "  netDevices: [{hostInterfaceName: eth0, name: eth0}]"), "0.5.0", "1.1.0", 1), "network devices"},
		"cache control":               {strings.Replace(small(card, "  intelRdt: {closID: x}"), "0.5.0", "0.7.0", 1), "intelRdt"},
		"a null node":                 {small(card, "  deviceNodes: [null]"), "empty device node"},
		"a null mount":                {small(card, "  mounts: [null]"), "empty mount"},
		"a null hook":                 {small(card, "  hooks: [null]"), "empty hook"},
		"many aliases":                {"a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b]\nd: [*c,*c,*c]", "unmarshal"},
		"too large":                   {strings.Repeat("#", maxBytes+1), "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := injector(t).Parse([]byte(c.spec))
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want one line with %q", err, c.want)
			}
		})
	}
}

// FuzzParse: whatever is taken over gives a job nothing but what the driver's
// own files and nodes are, however it was written.
func FuzzParse(f *testing.F) {
	f.Add([]byte(recorded(f, "h100.yaml")))
	f.Add([]byte(recorded(f, "old.json")))
	f.Add([]byte(small(card, nodes)))
	f.Add([]byte(small(card, "  mounts: [{hostPath: /usr/lib/a/b, containerPath: /usr/lib/a/b}]")))
	f.Add([]byte(small(card, "  env: [NVIDIA_X=1]\n  deviceNodes: [{path: /dev/nvidia-caps/nvidia-cap1}]")))
	f.Fuzz(func(t *testing.T, data []byte) {
		in := injector(t)
		spec, err := in.Parse(data)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("an error of several lines: %q", err)
			}
			return
		}
		for i := range spec.Devices {
			if !byUUID(spec.Devices[i].Name) {
				continue
			}
			to := &specs.ContainerEdits{}
			in.add(to, &spec.ContainerEdits, "", ImageRoot)
			in.add(to, &spec.Devices[i].ContainerEdits, spec.Devices[i].Name, ImageRoot)
			checkGiven(t, in, to)
		}
	})
}

func checkGiven(t *testing.T, in *Injector, e *specs.ContainerEdits) {
	cards := 0
	for _, n := range e.DeviceNodes {
		if in.classOf(n.Path) == classCard {
			cards++
		}
		if !strings.HasPrefix(n.Path, "/dev/nvidia") || !strings.Contains(n.HostPath, "/dev/nvidia") || n.Type != "c" || n.Permissions != "rw" || strings.Contains(n.HostPath, "..") {
			t.Errorf("node %+v", n)
		}
	}
	if cards != 1 {
		t.Errorf("%d cards for one device", cards)
	}
	for _, m := range e.Mounts {
		if strings.HasPrefix(m.HostPath, "/tmp") {
			t.Errorf("mount %+v is of a place where every user writes", m)
		}
		if strings.Contains(m.HostPath+m.ContainerPath, "..") || !slices.Contains(m.Options, "nosuid") || !slices.Contains(m.Options, "nodev") {
			t.Errorf("mount %+v", m)
		}
		if w, _ := mountMode(m); !w && !slices.Contains(m.Options, "ro") {
			t.Errorf("mount %+v can be written to", m)
		}
	}
	for _, h := range e.Hooks {
		if !slices.Contains(in.cfg.Hooks, h.Path) || !slices.Equal(h.Env, HookEnv()) {
			t.Errorf("hook %+v", h)
		}
	}
	for _, v := range e.Env {
		if !strings.HasPrefix(v, "NVIDIA_") {
			t.Errorf("variable %q", v)
		}
	}
}

func TestConfigRefuses(t *testing.T) {
	for name, cfg := range map[string]Config{
		"a relative directory": {Dirs: []string{"cdi"}},
		"a hook with dots":     {Hooks: []string{"/usr/bin/../x"}},
		"an unknown class":     {Extra: []Class{"everything"}},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

func TestErrorsAreOneLineWithTheFix(t *testing.T) {
	err := error(&Error{Fault: Stale, File: "/etc/cdi/nvidia.yaml", Text: "was made for driver 570.1.2, and 580.3.4 runs", Fix: Generate("/etc/cdi/nvidia.yaml")})
	const want = "/etc/cdi/nvidia.yaml: was made for driver 570.1.2, and 580.3.4 runs; run: nvidia-ctk cdi generate --device-name-strategy=uuid --output=/etc/cdi/nvidia.yaml"
	if err.Error() != want {
		t.Errorf("got %q\nwant %q", err, want)
	}
	if got := faultOf(errors.Join(errors.New("x"), err)); got != Stale {
		t.Errorf("fault %q", got)
	}
}

// BenchmarkParse reads a specification of the size that a node has.
func BenchmarkParse(b *testing.B) {
	data, in := []byte(recorded(b, "h100.yaml")), injector(b)
	for b.Loop() {
		if _, err := in.Parse(data); err != nil {
			b.Fatal(err)
		}
	}
}

// faultOf returns the fault that an error of this package names, "" for other
// errors.
func faultOf(err error) Fault {
	var e *Error
	if errors.As(err, &e) {
		return e.Fault
	}
	return ""
}
