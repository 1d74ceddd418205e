package config_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cmd/internal/config"
	"github.com/berth-scheduler/berth/cmd/internal/golden"
	"github.com/berth-scheduler/berth/cmd/internal/safefile"
)

const minimal = "id: c1\ncluster: {id: hpc}\nlisten: {advertise: \"c1:7070\"}\n"

func loadAny(kind string, src config.Sources) error {
	if kind == "agent" {
		_, err := config.LoadAgent(src)
		return err
	}
	_, err := config.LoadCoordinator(src)
	return err
}

// TestBadFiles: every way to be wrong, and the whole message.
func TestBadFiles(t *testing.T) {
	for _, kind := range []string{"coordinator", "agent"} {
		paths, err := filepath.Glob(filepath.Join("testdata", kind, "*.bad.yaml"))
		if err != nil || len(paths) == 0 {
			t.Fatalf("no files of %s: %v", kind, err)
		}
		for _, path := range paths {
			t.Run(kind+"/"+strings.TrimSuffix(filepath.Base(path), ".bad.yaml"), func(t *testing.T) {
				err := loadAny(kind, config.Sources{Path: path})
				if _, ok := errors.AsType[config.Problems](err); !ok {
					t.Fatalf("got %v, want Problems", err)
				}
				golden.CheckFile(t, strings.TrimSuffix(path, ".bad.yaml")+".golden", err.Error()+"\n")
			})
		}
	}
}

func writeFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "berth.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestFilesThatAreNone: what a path may lead to instead of a small text.
func TestFilesThatAreNone(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	big := writeFile(t, "# "+strings.Repeat("x", config.MaxFileBytes)+"\n")
	for _, tc := range []struct {
		name, path string
		want       error
	}{
		{"missing", filepath.Join(dir, "none.yaml"), fs.ErrNotExist},
		{"directory", dir, safefile.ErrNotRegular},
		{"FIFO", fifo, safefile.ErrNotRegular},
		{"device", "/dev/zero", safefile.ErrNotRegular},
		{"over 64 KiB", big, safefile.ErrTooLarge},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := loadAny("coordinator", config.Sources{Path: tc.path}); !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.path) {
				t.Errorf("got %v, want %v naming %s", err, tc.want, tc.path)
			}
		})
	}
}

// TestHostileFilesEndSoon: within the size limit nothing takes long.
func TestHostileFilesEndSoon(t *testing.T) {
	for name, content := range map[string]string{
		"deep lists":    strings.Repeat("[", 60_000),
		"deep mappings": strings.Repeat("{a: ", 15_000),
		"laughs":        "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\nd: [*c,*c,*c,*c,*c,*c,*c]\n",
		"many keys":     strings.Repeat("k: 1\n", 13_000),
		"long key":      strings.Repeat("k", 60_000) + ": 1\n",
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			if err := loadAny("coordinator", config.Sources{Path: writeFile(t, content)}); err == nil {
				t.Error("accepted")
			}
			if took := time.Since(start); took > 10*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

func TestAcceptedOddities(t *testing.T) {
	for name, content := range map[string]string{
		"byte order mark":   "\ufeff" + minimal,
		"CRLF":              strings.ReplaceAll(minimal, "\n", "\r\n"),
		"comments":          "# head\n" + minimal + "# tail",
		"document marker":   "---\n" + minimal,
		"empty section":     minimal + "raft:\n  # heartbeat: 3s\n",
		"number as name":    "id: 17\ncluster: {id: hpc}\nlisten: {advertise: \"c1:7070\"}\n",
		"country of Norway": "id: no\ncluster: {id: on}\nlisten: {advertise: \"c1:7070\"}\n",
		"numeric admin":     minimal + "users: {admins: [1000, alice]}\n",
	} {
		t.Run(name, func(t *testing.T) {
			if err := loadAny("coordinator", config.Sources{Path: writeFile(t, content)}); err != nil {
				t.Errorf("refused: %v", err)
			}
		})
	}
}

// TestLaterLayersWin covers order, every kind of value, and what Print shows.
func TestLaterLayersWin(t *testing.T) {
	path := writeFile(t, `id: c1
cluster: {id: hpc}
peers:
  - {id: c1, addr: "c1:7070"}
  - {id: c2, addr: "c2:7070"}
  - {id: c3, addr: "c3:7070"}
raft: {heartbeat: 5s, election: 5s}
users:
  admins: [alice, 1001]
scheduling: {max_shares: 2, policy: cost}
`)
	l, err := config.LoadCoordinator(config.Sources{
		Path: path,
		Env: []string{
			"BERTH_SCHEDULING_MAX_SHARES=4", "BERTH_RAFT_LEASE=1500ms", "BERTH_USERS_ALLOW_ROOT=true", "BERTH_SCHEDULING_POLICY=slot",
			"BERTH_JOB_ID=7", "HOME=/root", "BERTH_PEERS=c1=a:1,c2=b:1,c3=c:1", "BERTH_USERS_ADMINS=bob, 1002",
		},
		Overrides: []config.Override{
			{Key: "scheduling.max_shares", Value: "5", Flag: "--max-shares"},
			{Key: "listen.metrics", Value: ""},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := config.DefaultCoordinator()
	want.ID, want.Cluster.ID = "c1", "hpc"
	want.Peers = []config.Peer{{ID: "c1", Addr: "a:1"}, {ID: "c2", Addr: "b:1"}, {ID: "c3", Addr: "c:1"}}
	want.Raft.Heartbeat, want.Raft.Election, want.Raft.Lease = 5*time.Second, 5*time.Second, 1500*time.Millisecond
	want.Users = config.Users{AllowRoot: true, MinUID: 1000, Admins: []string{"bob", "1002"}}
	want.Scheduling.MaxShares, want.Scheduling.Policy = 5, "slot"
	want.Listen.Metrics = ""
	if diff := cmp.Diff(&want, l.Config); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := l.Config.AdvertiseAddr(); got != "a:1" {
		t.Errorf("advertises %q, want its entry in peers", got)
	}
	var out bytes.Buffer
	if err := l.Print(&out); err != nil {
		t.Fatal(err)
	}
	golden.CheckFile(t, filepath.Join("testdata", "print.golden"), strings.ReplaceAll(out.String(), path, "FILE"))
}

// TestBadEnvironmentAndFlags: each problem names its own place, and all come
// at once.
func TestBadEnvironmentAndFlags(t *testing.T) {
	err := loadAny("coordinator", config.Sources{
		Path: writeFile(t, minimal),
		Env: []string{
			"BERTH_RAFT_HEARTBEAT=3", "BERTH_SCHEDULING_MAXSHARES=2", "BERTH_USERS_ALLOW_ROOT=yes", "BERTH_PEERS=c1",
			"BERTH_LEASE_AGENT=1s", "BERTH_SOMETHING_ELSE=1",
		},
		Overrides: []config.Override{{Key: "listen.adress", Value: "x", Flag: "--listen"}, {Key: "users.min_uid", Value: "1e3"}},
	})
	if err == nil {
		t.Fatal("accepted")
	}
	golden.CheckFile(t, filepath.Join("testdata", "env-and-flags.golden"), err.Error()+"\n")
}

func TestEveryKeyCanBeSetByEnvironment(t *testing.T) {
	if got := config.EnvName("scheduling.memory_headroom_mib"); got != "BERTH_SCHEDULING_MEMORY_HEADROOM_MIB" {
		t.Errorf("EnvName: %q", got)
	}
	l, err := config.LoadAgent(config.Sources{Env: []string{
		"BERTH_NODE_NAME=n1", "BERTH_CLUSTER_ID=hpc", "BERTH_COORDINATORS=c1:7070,c2:7070", "BERTH_RUNTIME_CONTAINERD_SOCKET=/run/c.sock",
	}})
	if err != nil {
		t.Fatal(err)
	}
	if l.Config.Runtime.Containerd.Socket != "/run/c.sock" || len(l.Config.Coordinators) != 2 {
		t.Errorf("got %+v", l.Config)
	}
}

func TestWarnings(t *testing.T) {
	c := config.DefaultCoordinator()
	c.Peers = []config.Peer{{ID: "c1"}, {ID: "c2"}}
	c.Users.AllowRoot = true
	if w := strings.Join(c.Warnings(), "\n"); !strings.Contains(w, "even number") || !strings.Contains(w, "allow_root") {
		t.Errorf("coordinator: %q", w)
	}
	a := config.DefaultAgent()
	a.Coordinators, a.Runtime.Kind = []string{"c1:7070"}, "process"
	if w := strings.Join(a.Warnings(), "\n"); !strings.Contains(w, "only one") || !strings.Contains(w, "process") {
		t.Errorf("agent: %q", w)
	}
	sound := config.DefaultCoordinator()
	sound.Peers = []config.Peer{{ID: "c1"}, {ID: "c2"}, {ID: "c3"}}
	if w := sound.Warnings(); len(w) != 0 {
		t.Errorf("three coordinators: %q", w)
	}
}

func TestCheckFiles(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, mode fs.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("x"), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	c := config.DefaultCoordinator()
	c.TLS = config.CoordinatorTLS{CA: file("ca.crt", 0o644), Cert: file("c.crt", 0o644), Key: file("c.key", 0o600), CAKey: file("ca.key", 0o400)}
	c.Gossip.KeyFile = file("gossip.key", 0o600)
	c.Data.Dir = filepath.Join(dir, "later")
	c.Power.SuspendProgram = file("sound", 0o755)
	if err := c.CheckFiles(); err != nil {
		t.Fatalf("sound files: %v", err)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	c.TLS = config.CoordinatorTLS{CA: fifo, Cert: dir, Key: file("open.key", 0o644), CAKey: filepath.Join(dir, "none")}
	c.Gossip.KeyFile, c.Data.Dir = file("group.key", 0o640), link
	c.Power.SuspendProgram, c.Power.ResumeProgram = file("down", 0o644), file("up", 0o777)
	if err := os.Chmod(c.Power.ResumeProgram, 0o777); err != nil { // whatever the umask is
		t.Fatal(err)
	}
	err := c.CheckFiles()
	for _, want := range []error{safefile.ErrNotRegular, safefile.ErrExposed, fs.ErrNotExist} {
		if !errors.Is(err, want) {
			t.Errorf("got %v, want %v within", err, want)
		}
	}
	for _, want := range []string{"tls.ca ", "tls.cert ", "tls.key ", "tls.ca_key ", "gossip.key_file ", "data.dir ", "FIFO", "chmod 600", "symbolic link", "power_saving.suspend_program ", "down is not an executable file", "up is world-writable"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("message lacks %q:\n%v", want, err)
		}
	}
	a := config.DefaultAgent()
	a.TLS, a.Gossip.Addr, a.Data.Dir = config.AgentTLS{CA: fifo, Cert: fifo, Key: fifo}, "", fifo
	if err := a.CheckFiles(); err == nil || strings.Count(err.Error(), "\n") != 3 {
		t.Errorf("agent: %v, want four problems", err)
	}
	a.GPUs.Health.Check = []string{fifo, "-q"} // root runs it
	if err := a.CheckFiles(); err == nil || strings.Count(err.Error(), "\n") != 4 || !strings.Contains(err.Error(), "gpus.health.check ") {
		t.Errorf("agent with a check of its cards: %v, want five problems", err)
	}
}

func FuzzCoordinatorFile(f *testing.F) {
	paths, err := filepath.Glob("testdata/coordinator/*.bad.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(minimal))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(dir, "f.yaml")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := config.LoadCoordinator(config.Sources{Path: path})
		if err != nil {
			if strings.ContainsAny(err.Error(), "\x1b\x00\r") {
				t.Fatalf("control characters in the message: %q", err)
			}
			return
		}
		if err := l.Config.Validate(); err != nil {
			t.Fatalf("accepted and invalid: %v", err)
		}
	})
}
