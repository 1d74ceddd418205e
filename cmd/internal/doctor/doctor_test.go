package doctor

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/cmd/internal/config"
)

// machine is a recorded one: a tree of files, and what programs print.
type machine struct {
	*testing.T
	host     *Host
	subject  *Subject
	programs map[string]string
	refused  map[string]error // addresses
	clock    Clock
	disk     Disk
	metrics  func(addr string) (string, error)
}

const (
	rootV2 = "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n30 22 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
	rootV1 = "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n31 22 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n32 22 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n33 22 0:29 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n34 22 0:30 / /sys/fs/cgroup/devices rw - cgroup cgroup rw,devices\n35 22 0:31 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n"
	uuid   = "GPU-4a2b9f1c-0d3e-4c57-9a61-5b8e7d2c1f00"
)

var now = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// newMachine is a GPU node on which nothing is wrong.
func newMachine(t *testing.T) *machine {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a recorded node has root's files and device nodes")
	}
	cfg := config.DefaultAgent()
	cfg.Node.Name, cfg.Cluster.ID, cfg.Coordinators = "n17", "hpc", []string{"head1:7070", "head2:7070"}
	m := &machine{
		T: t, subject: &Subject{Agent: &cfg, Roles: []Role{Agent}}, refused: map[string]error{},
		programs: map[string]string{
			"runc": "runc version 1.5.0\ncommit: x", "containerd": "containerd github.com/containerd/containerd/v2 v2.3.2 abc",
			"nvidia-ctk": "NVIDIA Container Toolkit CLI version 1.20.1\ncommit: y",
		},
		disk:    Disk{Bytes: 1 << 40, FreeBytes: 1 << 39, Inodes: 1000, FreeInodes: 900},
		metrics: func(string) (string, error) { return "go_goroutines 12\n", nil },
	}
	m.host = &Host{
		Root: t.TempDir(), Now: func() time.Time { return now }, Release: func() string { return "6.8.0-45-generic" },
		Run: func(_ context.Context, name string, _ ...string) (string, error) {
			if text, found := m.programs[name]; found {
				return text, nil
			}
			return "", fmt.Errorf("%s %w", name, errAbsent)
		},
		Disk:      func(string) (Disk, error) { return m.disk, nil },
		Dial:      func(_ context.Context, _, addr string) error { return m.refused[addr] },
		Listen:    func(network, addr string) error { return m.refused[network+" "+addr] },
		NodeClock: func(_ context.Context, addr string) (Clock, error) { return m.clock, m.refused[addr] },
		UserClock: func(_ context.Context, addr string) (Clock, error) { return m.clock, m.refused[addr] },
		Metrics: func(_ context.Context, addr string) (io.ReadCloser, error) {
			text, err := m.metrics(addr)
			return io.NopCloser(strings.NewReader(text)), err
		},
		LookupUser: func(uid string) (string, error) { return "nobody", m.refused["uid "+uid] },
	}
	if err := os.Chmod(m.host.Root, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"/proc/self/mountinfo": rootV2, "/proc/swaps": "Filename\tType\tSize\tUsed\tPriority\n",
		"/sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory pids\n", "/etc/nsswitch.conf": "passwd: files sss\n",
		"/var/lib/sss/pipes/nss": "", "/run/containerd/containerd.sock": "", "/run/x": "", "/home/x": "",
		"/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun\n",
		"/etc/cdi/nvidia.yaml":        m.spec("580.65.06"), "/usr/bin/nvidia-cdi-hook": "",
		"/etc/berth/tls/agent.crt": m.cert(now.Add(-24*time.Hour), now.Add(6*24*time.Hour)),
	} {
		m.write(name, text)
	}
	for _, secret := range []string{"/etc/berth/tls/agent.key", "/etc/berth/gossip.key"} {
		m.write(secret, "key")
		m.chmod(secret, 0o600)
	}
	m.chmod("/usr/bin/nvidia-cdi-hook", 0o755)
	for name, minor := range map[string]uint32{"nvidia0": 0, "nvidiactl": 255} {
		m.mknod("/dev/"+name, 195, minor)
		m.link(fmt.Sprintf("/dev/char/195:%d", minor), "../"+name)
	}
	return m
}

func (m *machine) write(name, text string) {
	m.Helper()
	p := m.host.path(name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(text), 0o644)); err != nil {
		m.Fatal(err)
	}
}

func (m *machine) must(err error) {
	m.Helper()
	if err != nil {
		m.Fatal(err)
	}
}

func (m *machine) chmod(name string, mode os.FileMode) { m.must(os.Chmod(m.host.path(name), mode)) }
func (m *machine) remove(name string)                  { m.must(os.RemoveAll(m.host.path(name))) }

func (m *machine) mknod(name string, major, minor uint32) {
	p := m.host.path(name)
	m.must(os.MkdirAll(filepath.Dir(p), 0o755))
	m.must(unix.Mknod(p, unix.S_IFCHR|0o666, int(unix.Mkdev(major, minor))))
}

func (m *machine) link(name, to string) {
	p := m.host.path(name)
	m.must(os.MkdirAll(filepath.Dir(p), 0o755))
	m.must(os.Symlink(to, p))
}

func (m *machine) spec(driver string) string {
	return fmt.Sprintf(`cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- {name: %s, containerEdits: {deviceNodes: [{path: /dev/nvidia0, hostPath: %s}]}}
containerEdits:
  deviceNodes: [{path: /dev/nvidiactl, hostPath: %s}]
  hooks:
  - {hookName: createContainer, path: %s, args: [x, enable-cuda-compat, --host-driver-version=%s]}
`, uuid, m.host.path("/dev/nvidia0"), m.host.path("/dev/nvidiactl"), m.host.path("/usr/bin/nvidia-cdi-hook"), driver)
}

func (m *machine) cert(from, to time.Time) string {
	m.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	m.must(err)
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: from, NotAfter: to}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	m.must(err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func (m *machine) mount(line string) {
	m.write("/proc/self/mountinfo", rootV2+line+"\n")
}

func TestASoundNode(t *testing.T) {
	m := newMachine(t)
	seen := map[string]bool{}
	for _, l := range Examine(t.Context(), m.host, m.subject) {
		seen[l.Check] = true
		if l.Status != OK || l.Text == "" || strings.Contains(l.Text, m.host.Root) {
			t.Errorf("%+v", l)
		}
	}
	for _, c := range checks() {
		if slices.Contains(c.roles, Agent) && !seen[c.name] {
			t.Errorf("%s says nothing", c.name)
		}
	}
}

// TestFindings spoils one thing each and looks for the line about it.
func TestFindings(t *testing.T) {
	agent := func(f func(*config.Agent)) func(*machine) { return func(m *machine) { f(m.subject.Agent) } }
	mount := func(line string) func(*machine) { return func(m *machine) { m.mount(line) } }
	program := func(name, text string) func(*machine) { return func(m *machine) { m.programs[name] = text } }
	exports := func(text string, err error) func(*machine) {
		return func(m *machine) { m.metrics = func(string) (string, error) { return text, err } }
	}
	ahead := func(d, bound time.Duration) func(*machine) { return func(m *machine) { m.clock = Clock{d, bound} } }
	for _, c := range []struct {
		name, check string
		spoil       func(*machine)
		status      Status
		text, fix   string
		key         string
	}{
		{"old kernel", "kernel", func(m *machine) { m.host.Release = func() string { return "4.18.0-553.el8" } }, Warn, "4.18.0-553.el8 is older than 5.6", "upgrade", ""},
		{"odd kernel", "kernel", func(m *machine) { m.host.Release = func() string { return "" } }, Warn, "not of the form", "", ""},
		{"wrong configuration", "configuration", func(m *machine) { m.subject.Agent, m.subject.AgentErr = nil, errors.New("node.name is missing") }, Fail, "node.name is missing", "berth config print agent", ""},
		{"unwise configuration", "configuration", agent(func(a *config.Agent) { a.Runtime.Kind = "process" }), Warn, "runtime.kind", "", ""},
		{"no memory controller", "cgroup", func(m *machine) { m.write("/sys/fs/cgroup/cgroup.controllers", "cpu pids\n") }, Fail, "without memory", "cgroup_enable=memory", ""},
		{"no cpuset", "cgroup", func(m *machine) { m.write("/sys/fs/cgroup/cgroup.controllers", "cpu memory pids\n") }, Warn, "no cpuset", "cgroup_enable=cpuset", ""},
		{"version 1", "cgroup", func(m *machine) { m.write("/proc/self/mountinfo", rootV1) }, OK, "version 1 with memory", "", ""},
		{"version 1 in part", "cgroup", func(m *machine) { m.write("/proc/self/mountinfo", strings.ReplaceAll(rootV1, "devices", "devicex")) }, Fail, "version 1 without devices", "mount version 2", ""},
		{"swap that nobody counts", "cgroup", func(m *machine) {
			m.write("/proc/self/mountinfo", rootV1)
			m.write("/proc/swaps", "Filename\n/dev/sdb partition 8388604 0 -2\n")
		}, Fail, "swap is on but not accounted", "swapaccount=1", ""},
		{"a unit's group", "cgroup", agent(func(a *config.Agent) { a.Cgroup.Parent = "/system.slice/berth" }), Fail, "systemd resets device rules at daemon-reload", "set cgroup.parent", ""},
		{"swap", "swap", func(m *machine) { m.write("/proc/swaps", "Filename\n/dev/sdb partition 8388604 0 -2\n") }, OK, "8191 MiB; jobs get none", "", ""},
		{"clock is a second off", "clock", ahead(1500*time.Millisecond, 2*time.Millisecond), Warn, "head1:7070 is 1500.0 ms ahead, give or take 2.0 ms", "chrony", ""},
		{"clock is a minute off", "clock", ahead(-2*time.Minute, time.Millisecond), Fail, "-120000.0 ms ahead", "chrony", ""},
		{"clock is off by less than can be told", "clock", ahead(900*time.Millisecond, 800*time.Millisecond), OK, "900.0 ms ahead", "", ""},
		{"coordinator is silent", "clock", func(m *machine) { m.refused["head2:7070"] = errors.New("refused") }, Warn, "head2:7070 does not report its time: refused", "", ""},
		{"coordinator cannot be reached", "ports", func(m *machine) { m.refused["head1:7070"] = errors.New("no route") }, Fail, "head1:7070 cannot be reached: no route", "firewall", ""},
		{"gossip is kept", "ports", func(m *machine) {
			m.subject.Agent.Gossip.Join = []string{"head1:7072"}
			m.refused["head1:7072"] = errors.New("timeout")
		}, Warn, "gossip port head1:7072 cannot be reached: timeout", "7072/udp", ""},
		{"gossip answers", "ports", agent(func(a *config.Agent) { a.Gossip.Join = []string{"head1:7072", "head2:7072"} }), OK, "2 gossip ports answer", "", ""},
		{"port is taken", "ports", func(m *machine) { m.refused["udp 0.0.0.0:7072"] = errors.New("bind: address already in use") }, OK, "gossip.addr 0.0.0.0:7072 is in use", "", ""},
		{"another machine's address", "ports", func(m *machine) { m.refused["tcp 127.0.0.1:7073"] = errors.New("cannot assign requested address") }, Fail, "listen.metrics 127.0.0.1:7073/tcp cannot be listened on", "address of this machine", ""},
		{"containerd hangs", "stuck", exports("x 1\nberth_stuck_seconds{what=\"start a job\"} 754.2\n", nil), Warn, `berth-agent: "start a job" hangs or fails since 2026-05-04 11:47:26 (12m34s)`, "restart containerd", ""},
		{"a process cannot be killed", "stuck", exports("berth_stuck_seconds{what=\"process 4711 (cp, in nfs_wait) of job 12\"} 80\n", nil), Warn, `berth-agent: process 4711 (cp, in nfs_wait) of job 12 waits in the kernel, where SIGKILL does not end it, since 2026-05-04 11:58:40 (1m20s)`, "umount -l", ""},
		{"a request hangs", "stuck", func(m *machine) {
			c := config.DefaultCoordinator()
			m.subject.Coordinator, m.subject.Roles = &c, []Role{Coordinator}
			exports("berth_stuck_seconds{what=\"ListJobs\"} 200\n", nil)(m)
		}, Warn, `berth-coordinator: "ListJobs" hangs or fails since 2026-05-04 11:56:40 (3m20s)`, "kill -s QUIT berth-coordinator", ""},
		{"the agent hangs", "stuck", exports("", context.DeadlineExceeded), Warn, "berth-agent does not say what hangs", "restart berth-agent", ""},
		{"the agent does not run", "stuck", exports("", unix.ECONNREFUSED), OK, "berth-agent does not run", "", ""},
		{"nobody can be asked", "stuck", agent(func(a *config.Agent) { a.Listen.Metrics = "" }), OK, "no listen.metrics", "", ""},
		{"expired", "certificate", func(m *machine) {
			m.write("/etc/berth/tls/agent.crt", m.cert(now.Add(-48*time.Hour), now.Add(-36*time.Hour)))
		}, Fail, "expired 1.5 days ago", "berth token create", ""},
		{"about to expire", "certificate", func(m *machine) {
			m.write("/etc/berth/tls/agent.crt", m.cert(now.Add(-6*24*time.Hour), now.Add(24*time.Hour)))
		}, Warn, "good for 1.0 days of 7.0 days", "renews itself", ""},
		{"not yet valid", "certificate", func(m *machine) {
			m.write("/etc/berth/tls/agent.crt", m.cert(now.Add(time.Hour), now.Add(48*time.Hour)))
		}, Fail, "not yet valid", "set the clock", ""},
		{"no certificate", "certificate", func(m *machine) { m.write("/etc/berth/tls/agent.crt", "x") }, Fail, "holds no certificate", "join again", ""},
		{"certificate is gone", "certificate", func(m *machine) { m.remove("/etc/berth/tls/agent.crt") }, Fail, "no such file", "berth agent join", ""},
		{"key is open", "keys", func(m *machine) { m.chmod("/etc/berth/tls/agent.key", 0o644) }, Fail, "/etc/berth/tls/agent.key has mode 0644", "chmod 600 /etc/berth/tls/agent.key", ""},
		{"key is another's", "keys", func(m *machine) { m.must(os.Chown(m.host.path("/etc/berth/gossip.key"), 1000, 0)) }, Fail, "belongs to uid 1000", "chown 0 /etc/berth/gossip.key", ""},
		{"key is gone", "keys", func(m *machine) { m.remove("/etc/berth/gossip.key") }, Fail, "no such file", "", ""},
		{"journal on NFS", "data", mount("40 22 0:50 / /var/lib rw - nfs4 srv:/x rw"), Fail, "data.dir /var/lib/berth/agent is on nfs4", "local disk", config.UnsafeData},
		{"journal in memory", "data", mount("40 22 0:50 / /var/lib rw - tmpfs tmpfs rw"), Fail, "lost on reboot", "local disk", ""},
		{"journal open to others", "data", func(m *machine) {
			m.write("/var/lib/berth/agent/x", "")
			m.chmod("/var/lib/berth/agent", 0o777)
		}, Fail, "writable by others", "chmod 700 /var/lib/berth/agent", ""},
		{"disk almost full", "data", func(m *machine) { m.disk.FreeBytes = m.disk.Bytes / 15 }, Warn, "68 GiB free (6 %)", "free up space", ""},
		{"disk full", "data", func(m *machine) { m.disk.FreeBytes = m.disk.Bytes / 100 }, Fail, "10 GiB free (0 %)", "free up space", ""},
		{"no inodes", "data", func(m *machine) { m.disk.FreeInodes = 10 }, Fail, "1 % of inodes", "free up space", ""},
		{"no room for images", "images", func(m *machine) { m.disk.FreeBytes = m.disk.Bytes / 12 }, Fail, "images /var/lib/containerd", "free up space", ""},
		{"images elsewhere", "images", func(m *machine) { m.write("/etc/containerd/config.toml", "version = 2\nroot = \"/data/ctd\"\n") }, OK, "images /data/ctd", "", ""},
		{"scripts where others write", "scripts", func(m *machine) { m.chmod("/run", 0o777) }, Fail, "users other than root can change /run", "chmod 755 /run", ""},
		{"scripts where nobody comes", "scripts", func(m *machine) { m.chmod("/run", 0o700) }, Fail, "users cannot enter /run", "chmod 755 /run", ""},
		{"scripts on noexec", "scripts", mount("40 22 0:50 / /run rw,nosuid,noexec - tmpfs tmpfs rw"), Warn, "noexec", "another directory", ""},
		{"sssd is down", "users", func(m *machine) { m.remove("/var/lib/sss") }, Fail, "sssd is not running", "sssd", ""},
		{"users are unknown", "users", func(m *machine) { m.refused["uid 65534"] = errors.New("unknown") }, Fail, "uid 65534 is unknown here", "getent passwd", ""},
		{"users are slow", "users", func(m *machine) {
			var late atomic.Int64 // checks run side by side, and all ask for the time
			m.host.Now = func() time.Time { return now.Add(time.Duration(late.Load())) }
			m.host.LookupUser = func(string) (string, error) { late.Store(int64(3 * time.Second)); return "nobody", nil }
		}, Warn, "took 3.0 s", "sssd or nscd", ""},
		{"homes on NFS", "homes", mount("40 22 0:50 / /home rw - nfs4 srv:/home rw,hard"), OK, "/home is nfs4; files there are opened as the user", "", ""},
		{"homes on soft NFS", "homes", mount("40 22 0:50 / /home rw - nfs srv:/home rw,soft"), Warn, "soft", "mount it hard", ""},
		{"homes noexec", "homes", mount("40 22 0:50 / /home rw,noexec - xfs /dev/sdc rw"), Warn, "noexec", "exec", ""},
		{"homes read-only", "homes", mount("40 22 0:50 / /home ro - xfs /dev/sdc ro"), Fail, "read-only", "mount it rw", ""},
		{"no containerd", "containerd", func(m *machine) { m.remove("/run/containerd") }, Warn, "jobs run as plain processes", "install containerd", ""},
		{"containerd is down", "containerd", func(m *machine) { m.refused["/run/containerd/containerd.sock"] = errors.New("refused") }, Fail, "does not answer: refused", "systemctl enable --now containerd", ""},
		{"old containerd", "containerd", program("containerd", "containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u1"), Warn, "CVE-2026-53488", "install containerd 1.7.35 or later", ""},
		{"no runc", "runc", func(m *machine) { delete(m.programs, "runc") }, Fail, "runc not installed", "install runc", ""},
		{"runc with a hole", "runc", program("runc", "runc version 1.1.11\ncommit: v1.1.11-0-g4bccb38c"), Fail, "CVE-2024-21626: a working directory leaks", "install runc 1.1.12 or later", "runc-CVE-2024-21626"},
		{"a distribution's runc", "runc", program("runc", "runc version 1.1.5+ds1"), Warn, "has CVE-2024-21626 by its number", "advisories", ""},
		{"runc of whoever", "runc", program("runc", "runc from source"), Warn, "cannot be read", "", ""},
		{"no driver", "driver", func(m *machine) { m.remove("/proc/driver/nvidia") }, Fail, "no NVIDIA driver is loaded", "gpus.provider: none", ""},
		{"no card", "driver", func(m *machine) { m.remove("/dev/nvidia0") }, Fail, "/dev has no nvidia0", "nvidia-modprobe", ""},
		{"no GPUs wanted", "driver", agent(func(a *config.Agent) { a.GPUs.Provider = "none" }), OK, "not needed", "", ""},
		{"no toolkit", "toolkit", func(m *machine) { delete(m.programs, "nvidia-ctk") }, Fail, "nvidia-ctk not installed", "nvidia-container-toolkit-base", ""},
		{"toolkit with a hole", "toolkit", program("nvidia-ctk", "NVIDIA Container Toolkit CLI version 1.17.7"), Fail, "CVE-2025-23266", "1.17.8 or later", "nvidia-container-toolkit-CVE-2025-23266"},
		{"no specification", "cdi", func(m *machine) { m.remove("/etc/cdi") }, Fail, "no specification of kind nvidia.com/gpu in /etc/cdi or /var/run/cdi", "nvidia-ctk cdi generate --device-name-strategy=uuid --output=/etc/cdi/nvidia.yaml", ""},
		{"stale specification", "cdi", func(m *machine) { m.write("/etc/cdi/nvidia.yaml", m.spec("570.1.1")) }, Fail, "/etc/cdi/nvidia.yaml: was made for driver 570.1.1, and 580.65.06 runs", "nvidia-ctk cdi generate --device-name-strategy=uuid --output=/etc/cdi/nvidia.yaml", ""},
		{"hostile specification", "cdi", func(m *machine) {
			m.write("/etc/cdi/nvidia.yaml", m.spec("580.65.06")+"  mounts: [{hostPath: /, containerPath: /host}]\n")
		}, Fail, "mount of / at /host is none of the driver's files", "nvidia-ctk", ""},
		{"no links", "daemon-reload", func(m *machine) { m.remove("/dev/char") }, Warn, "no link for /dev/nvidia0, /dev/nvidiactl", "create-dev-char-symlinks", ""},
		{"systemd's groups", "daemon-reload", func(m *machine) {
			m.remove("/dev/char")
			m.write("/etc/containerd/config.toml", "  SystemdCgroup = true\n")
		}, Warn, "SystemdCgroup = true", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t)
			c.spoil(m)
			lines := Examine(t.Context(), m.host, m.subject)
			found := slices.ContainsFunc(lines, func(l Line) bool {
				return l.Check == c.check && l.Status == c.status && strings.Contains(l.Text, c.text) && strings.Contains(l.Fix, c.fix) && l.Key == c.key && !strings.ContainsAny(l.Text+l.Fix, "\n")
			})
			if !found {
				t.Errorf("no line %s %s %q with fix %q and key %q; got:", c.status, c.check, c.text, c.fix, c.key)
				for _, l := range lines {
					if l.Check == c.check {
						t.Logf("%+v", l)
					}
				}
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	m := newMachine(t)
	if got := Refusals(t.Context(), m.host, m.subject.Agent); len(got) > 0 {
		t.Errorf("a sound node is refused: %+v", got)
	}
	m.programs["runc"] = "runc version 1.1.11"
	m.mount("40 22 0:50 / /var/lib rw - nfs4 srv:/x rw")
	var keys []string
	for _, l := range Refusals(t.Context(), m.host, m.subject.Agent) {
		keys = append(keys, l.Key)
	}
	want := []string{config.UnsafeData, "runc-CVE-2024-21626", "runc-CVE-2025-31133"}
	if !slices.Equal(keys, want) {
		t.Fatalf("refused for %q, want %q", keys, want)
	}
	m.subject.Agent.Unsafe = want[1:]
	if got := Refusals(t.Context(), m.host, m.subject.Agent); len(got) != 1 || got[0].Key != config.UnsafeData {
		t.Errorf("what is accepted is refused: %+v", got)
	}
	lines := Examine(t.Context(), m.host, m.subject)
	if !slices.ContainsFunc(lines, func(l Line) bool {
		return l.Status == Warn && strings.Contains(l.Text, "accepted: unsafe has runc-CVE-2024-21626")
	}) {
		t.Errorf("what is accepted is not said: %+v", lines)
	}
	// Every key that can be refused for can be accepted.
	m.subject.Agent.Unsafe = append([]string{config.UnsafeData}, m.subject.Agent.Unsafe...)
	var p config.Problems
	if err := m.subject.Agent.Validate(); errors.As(err, &p) {
		t.Errorf("%v", p)
	}
}

func TestCoordinatorAndLogin(t *testing.T) {
	m := newMachine(t)
	cfg := config.DefaultCoordinator()
	cfg.ID, cfg.Peers = "c1", []config.Peer{{ID: "c1", Addr: "head1:7070"}, {ID: "c2", Addr: "head2:7070"}}
	m.write("/etc/berth/tls/coordinator.crt", m.cert(now.Add(-24*time.Hour), now.Add(6*24*time.Hour)))
	for _, k := range []string{"/etc/berth/tls/coordinator.key", "/etc/berth/tls/ca.key"} {
		m.write(k, "key")
		m.chmod(k, 0o600)
	}
	m.subject = &Subject{Coordinator: &cfg, Roles: []Role{Coordinator}}
	for _, l := range Examine(t.Context(), m.host, m.subject) {
		if l.Status != OK || slices.Contains([]string{"cdi", "runc", "homes"}, l.Check) || strings.Contains(l.Text, "coordinator head1:7070") {
			t.Errorf("coordinator: %+v", l)
		}
	}
	m.mount("40 22 0:50 / /var/lib rw - nfs4 srv:/x rw")
	if !slices.ContainsFunc(Examine(t.Context(), m.host, m.subject), func(l Line) bool { return l.Status == Fail && strings.Contains(l.Text, "the log must be on a disk") }) {
		t.Error("a log on NFS passes")
	}
	login := &Subject{Sockets: []string{"/run/a.sock", "/run/b.sock"}, Roles: []Role{Login}}
	m.refused["/run/a.sock"] = errors.New("refused")
	if lines := Examine(t.Context(), m.host, login); Failed(lines) || !slices.ContainsFunc(lines, func(l Line) bool { return l.Status == Warn && l.Check == "ports" }) {
		t.Errorf("login node with one socket of two: %+v", lines)
	}
	m.refused["/run/b.sock"] = errors.New("refused")
	if lines := Examine(t.Context(), m.host, login); !Failed(lines) {
		t.Errorf("login node without a coordinator: %+v", lines)
	}
}

// TestWhatHangs: a check that does not answer is a finding, and holds up no
// other.
func TestWhatHangs(t *testing.T) {
	m := newMachine(t)
	release := make(chan struct{})
	defer close(release)
	hung := check{"hung", []Role{Agent}, func(context.Context, *Host, *Subject) []Line { <-release; return nil }}
	quick := check{"quick", []Role{Agent}, func(context.Context, *Host, *Subject) []Line { return ok("here") }}
	lines := examine(t.Context(), m.host, m.subject, []check{hung, quick}, 20*time.Millisecond)
	if len(lines) != 2 || lines[0].Status != Fail || !strings.Contains(lines[0].Text, "no answer within 20ms") || lines[1].Text != "here" {
		t.Errorf("got %+v", lines)
	}
}
