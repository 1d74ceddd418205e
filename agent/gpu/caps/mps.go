package caps

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Names of variables by which CUDA programs find their daemon and their limits.
const (
	mpsPipe    = "CUDA_MPS_PIPE_DIRECTORY"
	mpsLog     = "CUDA_MPS_LOG_DIRECTORY"
	mpsMemory  = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
	mpsThreads = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
)

// DaemonsConfig configures the control daemons.
type DaemonsConfig struct {
	// Control is the path of nvidia-cuda-mps-control.
	Control string
	// Dir holds one directory per GPU; users must be able to enter its parents, and only
	// root may write to them.
	Dir string
	// MultiUser lets clients of several users into one server. Faults and memory are then
	// isolated no better than among processes of one user.
	MultiUser bool
	// Place moves a process that is to become a daemon where it, and the servers that it
	// starts as other users, are recognised as the agent's own; nil leaves it where the
	// agent is. An unrecognised server is a stray on the GPU.
	Place func(pid int) error
	Log   *slog.Logger
}

// Daemons runs one MPS control daemon per GPU, while the GPU is shared. The daemons outlive
// the agent: a new one finds those that answer on their pipes. It is safe for concurrent
// use; calls for one GPU wait for each other.
type Daemons struct {
	cfg DaemonsConfig

	mu    sync.Mutex
	cards map[string]*mpsCard
}

type mpsCard struct {
	mu      sync.Mutex // held while the daemon is queried
	members map[string]struct{}
	seen    int64 // offset in the server's log after the last reported fault
}

// Client is an attempt that shares a GPU through its daemon.
type Client struct {
	Attempt string
	// MemMiB and Milli are its share, divided equally among Processes: the limits are per
	// process.
	MemMiB, Milli int64
	Processes     int
}

// NewDaemons returns a Daemons that has started nothing.
func NewDaemons(cfg DaemonsConfig) *Daemons {
	return &Daemons{cfg: cfg, cards: map[string]*mpsCard{}}
}

func (m *Daemons) card(uuid string) *mpsCard {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.cards[uuid]
	if c == nil {
		c = &mpsCard{members: map[string]struct{}{}}
		m.cards[uuid] = c
	}
	return c
}

// PipeDir returns the directory that a job in an image must see at the same path.
func (m *Daemons) PipeDir(uuid string) string { return filepath.Join(m.cfg.Dir, uuid, "pipe") }

func (m *Daemons) logDir(uuid string) string { return filepath.Join(m.cfg.Dir, uuid, "log") }

// Join adds an attempt to a GPU and returns the environment of its processes. It starts the
// daemon if none answers. Joining again changes nothing.
func (m *Daemons) Join(ctx context.Context, uuid string, cl Client) ([]string, error) {
	if !cleanUUID(uuid) || cl.Attempt == "" || cl.MemMiB < 1 || cl.Milli < 0 || cl.Milli > 1000 {
		return nil, fmt.Errorf("mps: %q asks for %d MiB and %d thousandths of GPU %q", cl.Attempt, cl.MemMiB, cl.Milli, uuid)
	}
	c := m.card(uuid)
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := m.ask(ctx, uuid, "get_server_list"); err != nil {
		if err := m.start(ctx, uuid); err != nil {
			return nil, err
		}
		c.seen = 0
	}
	c.members[cl.Attempt] = struct{}{}
	n := int64(max(1, cl.Processes))
	return []string{
		mpsPipe + "=" + m.PipeDir(uuid),
		// By index, not UUID: some drivers accept only that. A job sees only its own GPU,
		// which is its first.
		mpsMemory + "=0=" + strconv.FormatInt(max(1, cl.MemMiB/n), 10) + "M",
		mpsThreads + "=" + strconv.FormatInt(max(1, (cl.Milli/n+9)/10), 10),
	}, nil
}

// cleanUUID reports whether a UUID is safe in a path.
func cleanUUID(s string) bool {
	return len(s) > 4 && len(s) < 100 && !strings.ContainsFunc(s, func(r rune) bool {
		return r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
}

// Leave removes an attempt from a GPU; the daemon ends with the last one.
func (m *Daemons) Leave(ctx context.Context, uuid, attempt string) error {
	c := m.card(uuid)
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.members[attempt]; !ok {
		return nil
	}
	delete(c.members, attempt)
	if len(c.members) > 0 {
		return nil
	}
	return m.quit(ctx, uuid)
}

// Sweep ends the daemons that no attempt has joined, such as those left by a previous
// agent. Adopted attempts must have joined already.
func (m *Daemons) Sweep(ctx context.Context) error {
	entries, err := os.ReadDir(m.cfg.Dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("mps: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if !e.IsDir() || !cleanUUID(e.Name()) {
			continue
		}
		c := m.card(e.Name())
		c.mu.Lock()
		if _, err := m.ask(ctx, e.Name(), "get_server_list"); err == nil && len(c.members) == 0 {
			errs = append(errs, m.quit(ctx, e.Name()))
		}
		c.mu.Unlock()
	}
	return errors.Join(errs...)
}

// Members returns the attempts that share a GPU through its daemon, sorted.
func (m *Daemons) Members(uuid string) []string {
	c := m.card(uuid)
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.members))
}

// Shared returns the GPUs that are shared, sorted.
func (m *Daemons) Shared() []string {
	m.mu.Lock()
	cards := slices.Sorted(maps.Keys(m.cards))
	m.mu.Unlock()
	return slices.DeleteFunc(cards, func(uuid string) bool { return len(m.Members(uuid)) == 0 })
}

// Fault is the end of a server, and with it of all attempts that share the GPU.
type Fault struct {
	UUID string
	// PID is the host pid of the process at fault, 0 when unknown.
	PID    int
	Detail string
}

// Check asks the daemon of a GPU about its servers. It returns nil when all is well or the
// GPU is not shared.
func (m *Daemons) Check(ctx context.Context, uuid string) *Fault {
	c := m.card(uuid)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.members) == 0 {
		return nil
	}
	list, err := m.ask(ctx, uuid, "get_server_list")
	if err != nil && ctx.Err() == nil {
		f := &Fault{UUID: uuid, Detail: "the MPS daemon is gone"}
		f.PID, _ = m.culprit(uuid, c)
		return f
	}
	for _, pid := range strings.Fields(list) {
		if _, err := strconv.Atoi(pid); err != nil {
			continue
		}
		if status, err := m.ask(ctx, uuid, "get_server_status "+pid); err == nil && strings.Contains(status, "FAULT") {
			f := &Fault{UUID: uuid, Detail: "the MPS server was ended by a fault of one of its clients"}
			f.PID, _ = m.culprit(uuid, c)
			return f
		}
	}
	// A server that ended by a fault and is gone shows only in the log.
	if pid, found := m.culprit(uuid, c); found {
		return &Fault{UUID: uuid, PID: pid, Detail: "the MPS server was ended by a fault of one of its clients"}
	}
	return nil
}

// maxServerLog is how much of a server's log is read at once.
const maxServerLog = 256 << 10

// culprit searches the server's log, after what was reported before, for the client at
// fault; pid is 0 if a fault names none.
func (m *Daemons) culprit(uuid string, c *mpsCard) (pid int, found bool) {
	f, err := os.Open(filepath.Join(m.logDir(uuid), "server.log"))
	if err != nil {
		return 0, false
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || st.Size() <= c.seen {
		return 0, false
	}
	from := max(c.seen, st.Size()-maxServerLog)
	buf := make([]byte, st.Size()-from)
	n, _ := f.ReadAt(buf, from)
	c.seen = from + int64(n)
	return FaultIn(buf[:n])
}

var (
	faultLine  = regexp.MustCompile(`(?i)\bfatal (?:exception|error|fault)\b|\bSERVER FAULT\b|\bFAULT state\b`)
	faultOwner = regexp.MustCompile(`(?i)\bclient(?: process)?(?: \(?pid\)?:?)? (\d{1,9})\b`)
)

// FaultIn finds the first fault in a server's log, and the client that the log blames for
// it; pid is 0 when it names none.
func FaultIn(log []byte) (pid int, found bool) {
	for line := range bytes.Lines(log) {
		if !faultLine.Match(line) {
			continue
		}
		found = true
		if who := faultOwner.FindSubmatch(line); who != nil {
			pid, _ = strconv.Atoi(string(who[1])) // nine digits at most
			return pid, true
		}
	}
	return 0, found
}

// start runs a control daemon for one GPU, which detaches itself.
func (m *Daemons) start(ctx context.Context, uuid string) error {
	for dir, mode := range map[string]os.FileMode{m.PipeDir(uuid): 0o755, m.logDir(uuid): 0o700} {
		if err := os.MkdirAll(dir, mode); err != nil {
			return fmt.Errorf("mps: %w", err)
		}
	}
	// The log of an earlier server says nothing about this one.
	if err := os.Truncate(filepath.Join(m.logDir(uuid), "server.log"), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("mps: %w", err)
	}
	args := []string{"-d"}
	if m.cfg.MultiUser {
		args = append(args, "-multiuser-server")
	}
	if out, err := m.run(ctx, uuid, "\n", m.cfg.Place, append([]string{"/bin/sh", "-c", `read -r line; exec "$0" "$@" </dev/null`, m.cfg.Control}, args...)...); err != nil {
		return fmt.Errorf("mps: start the daemon of GPU %s: %w: %.200s", uuid, err, out)
	}
	m.cfg.Log.InfoContext(ctx, "MPS daemon started", "component", "mps", "gpu", uuid)
	return nil
}

func (m *Daemons) quit(ctx context.Context, uuid string) error {
	if out, err := m.run(ctx, uuid, "quit -t 10\n", nil, m.cfg.Control); err != nil {
		if _, alive := m.ask(ctx, uuid, "get_server_list"); alive != nil {
			return nil // it was gone already
		}
		return fmt.Errorf("mps: end the daemon of GPU %s: %w: %.200s", uuid, err, out)
	}
	m.cfg.Log.InfoContext(ctx, "MPS daemon ended", "component", "mps", "gpu", uuid)
	return nil
}

func (m *Daemons) ask(ctx context.Context, uuid, command string) (string, error) {
	return m.run(ctx, uuid, command+"\n", nil, m.cfg.Control)
}

// controlTimeout is the time limit for one command of the control program.
const controlTimeout = 15 * time.Second

// run runs a program for one GPU with its own environment. It gets its input once it is
// placed.
func (m *Daemons) run(ctx context.Context, uuid, input string, place func(pid int) error, program ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program[0], program[1:]...)
	cmd.Env = []string{
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "CUDA_VISIBLE_DEVICES=" + uuid,
		mpsPipe + "=" + m.PipeDir(uuid), mpsLog + "=" + m.logDir(uuid),
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second // a daemon may keep its parent's output open
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	if place != nil {
		if err := place(cmd.Process.Pid); err != nil {
			m.cfg.Log.WarnContext(ctx, "the MPS daemon stays in the agent's control group, and its servers count as strays", "component", "mps", "gpu", uuid, "err", err)
		}
	}
	_, _ = io.WriteString(in, input) // if it ended without reading, its status says why
	_ = in.Close()
	if err = cmd.Wait(); errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	return strings.TrimSpace(out.String()), err
}
