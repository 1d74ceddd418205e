// Package owner finds out which attempts the processes on a GPU belong to: the driver
// reports host pids, the kernel reports the control group of a pid, and the group of an
// attempt has the attempt's name, whichever runtime created it. A process in no group of
// ours is a stray: it was started without Berth.
package owner

import (
	"cmp"
	"log/slog"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/cluster"
)

// Config says where to look. Parent is required.
type Config struct {
	// Parent is the control group that contains those of the attempts, such as "/berth".
	Parent string
	// Proc is where procfs is mounted; "" means /proc.
	Proc string
	// User returns the name of an account, "" without one. It may take long: it is called
	// in the background, once for each uid.
	User func(uid uint32) string
	Log  *slog.Logger // nil discards
}

// Finder identifies processes. It is safe for concurrent use.
type Finder struct {
	cfg Config

	mu    sync.Mutex
	known map[int]owner
	users map[uint32]string
}

// owner is the owner of a process, valid as long as its start time does not change.
type owner struct {
	start   uint64 // in clock ticks since boot
	attempt string
	ours    bool // in a group of ours that is no attempt's
	uid     uint32
	command string
	looked  time.Time
}

// lookAgain is how long the finding that a process is a stray is valid: it could still be
// on its way into its group.
const lookAgain = time.Second

// New returns a Finder that knows nothing yet.
func New(cfg Config) *Finder {
	cfg.Proc = cmp.Or(cfg.Proc, "/proc")
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Parent = path.Clean("/" + cfg.Parent)
	return &Finder{cfg: cfg, known: map[int]owner{}, users: map[uint32]string{}}
}

// Mark is called before the driver is queried; the function that it returns fills in
// Attempt, Stray, User and Command of the processes in the answer. A process that began
// after the mark could have the pid of one that the driver saw end: it is identified the
// next time.
func (f *Finder) Mark() func(usage []gpu.Usage) {
	now := bootTicks()
	return func(usage []gpu.Usage) { f.name(usage, now) }
}

func (f *Finder) name(usage []gpu.Usage, before uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := map[int]struct{}{}
	for i := range usage {
		for k := range usage[i].Processes {
			pr := &usage[i].Processes[k]
			seen[pr.PID] = struct{}{}
			o, ok := f.find(pr.PID, before)
			if !ok {
				continue
			}
			pr.Attempt = o.attempt
			if o.attempt == "" && !o.ours {
				pr.Stray, pr.Command, pr.User = true, o.command, f.user(o.uid)
			}
		}
		byDifference(&usage[i])
	}
	for pid := range f.known {
		if _, ok := seen[pid]; !ok {
			delete(f.known, pid)
		}
	}
}

// find returns the owner of a pid; false if there is no such process any more, or not the
// one that the driver meant. The caller holds f.mu.
func (f *Finder) find(pid int, before uint64) (owner, bool) {
	dir := path.Join(f.cfg.Proc, strconv.Itoa(pid))
	st, ok := readStat(dir)
	if !ok || st.start > before {
		delete(f.known, pid)
		return owner{}, false
	}
	o, known := f.known[pid]
	known = known && o.start == st.start
	if known && (o.attempt != "" || time.Since(o.looked) < lookAgain) {
		return o, true
	}
	if st.zombie { // its group is gone, its memory may not be
		return o, known
	}
	group, err := os.ReadFile(path.Join(dir, "cgroup"))
	uid, hasUID := readUID(dir)
	again, still := readStat(dir)
	if err != nil || !hasUID || !still || again.start != st.start || again.zombie {
		return o, known // it has ended meanwhile
	}
	o = owner{start: st.start, uid: uid, command: clean(st.command), looked: time.Now()}
	o.attempt, o.ours = attemptOf(string(group), f.cfg.Parent)
	f.known[pid] = o
	return o, true
}

// user returns the name of an account. At first it returns the number: a hanging name
// service must block nothing. The caller holds f.mu.
func (f *Finder) user(uid uint32) string {
	name, asked := f.users[uid]
	if !asked {
		name = strconv.FormatUint(uint64(uid), 10)
		f.users[uid] = name
		if f.cfg.User != nil {
			go func() {
				found := clean(f.cfg.User(uid))
				f.mu.Lock()
				defer f.mu.Unlock()
				if found != "" {
					f.users[uid] = found
				}
			}()
		}
	}
	return name
}

// attemptOf parses /proc/PID/cgroup, which has a line for each version 1 hierarchy and one
// with the number 0 for version 2. ours is true when the process is in a group below
// parent, attempt is set when that is an attempt's. Lines that disagree identify none.
func attemptOf(text, parent string) (attempt string, ours bool) {
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 {
			continue
		}
		rest, below := strings.CutPrefix(strings.TrimSuffix(f[2], " (deleted)"), strings.TrimSuffix(parent, "/")+"/")
		if !below || rest == "" {
			continue
		}
		ours = true
		first, _, _ := strings.Cut(rest, "/")
		first, _, _ = strings.Cut(first, ".") // a container that was created again
		if _, err := cluster.ParseAttemptID(first); err != nil {
			continue
		}
		if attempt != "" && attempt != first {
			return "", true
		}
		attempt = first
	}
	return attempt, ours
}

// byDifference assigns an attempt, or a stray, the memory used beyond all others' if only
// the memory of its processes is not reported: it goes to the first of them, since only
// their sum can be known.
func byDifference(u *gpu.Usage) {
	rest := u.UsedMiB
	var unknown []int
	for i := range u.Processes {
		if pr := &u.Processes[i]; pr.MemMiB == gpu.Unknown {
			unknown = append(unknown, i)
		} else {
			rest -= pr.MemMiB
		}
	}
	if len(unknown) < 2 || u.WithReserve {
		return // none, or one that the driver side has settled
	}
	first := u.Processes[unknown[0]].Attempt
	for _, i := range unknown {
		if a := u.Processes[i].Attempt; a == "" || a != first {
			return
		}
	}
	for _, i := range unknown {
		u.Processes[i].MemMiB = 0
	}
	u.Processes[unknown[0]].MemMiB = max(0, rest)
}

// clean makes a name chosen by a user safe for logs and tables.
func clean(s string) string {
	if len(s) > 32 {
		s = s[:32]
	}
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r == 0x7f {
			return '_'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}
