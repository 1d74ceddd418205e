package doctor

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/cmd/internal/config"
)

// oldestKernel is the oldest with what the agent uses: openat2, pidfds,
// and cgroup v2's memory.events.local.
var oldestKernel = [2]int{5, 6}

func kernel(_ context.Context, h *Host, _ *Subject) []Line {
	rel := h.Release()
	major, rest, _ := strings.Cut(rel, ".")
	minor, _, _ := strings.Cut(rest, ".")
	a, err1 := strconv.Atoi(major)
	b, err2 := strconv.Atoi(strings.SplitN(minor, "-", 2)[0])
	switch {
	case err1 != nil || err2 != nil:
		return warn("", "release %q is not of the form 6.1.0", rel)
	case slices.Compare([]int{a, b}, oldestKernel[:]) < 0:
		return warn("upgrade the kernel", "%s is older than %d.%d, the oldest Berth is tested with; distributions that backport features may work", rel, oldestKernel[0], oldestKernel[1])
	case slices.Compare([]int{a, b}, []int{6, 15}) < 0:
		return ok("%s", rel)
	default:
		return ok("%s (tells exits by a signal from exit codes above 128)", rel)
	}
}

// controlGroups checks for the controllers that hold a job to its caps.
func controlGroups(_ context.Context, h *Host, s *Subject) []Line {
	v1 := map[string]string{}
	unified := ""
	for _, m := range h.mounts() {
		switch m.kind {
		case "cgroup2":
			unified = m.point
		case "cgroup":
			for _, o := range m.options {
				v1[o] = m.point
			}
		}
	}
	var out []Line
	if v1["memory"] == "" && unified != "" {
		out = unifiedGroups(h, unified)
	} else {
		out = separateGroups(h, v1)
	}
	if s.Agent != nil {
		p := s.Agent.Cgroup.Parent
		if strings.Contains(p, ".slice") || strings.Contains(p, ".service") || strings.Contains(p, ".scope") {
			out = append(out, fail("set cgroup.parent to a name of its own, such as /berth", "cgroup.parent %s is a systemd unit, and systemd resets device rules at daemon-reload", p)...)
		}
	}
	return out
}

func unifiedGroups(h *Host, point string) []Line {
	have := strings.Fields(h.read(filepath.Join(point, "cgroup.controllers")))
	var missing []string
	for _, c := range []string{"memory", "cpu", "pids"} {
		if !slices.Contains(have, c) {
			missing = append(missing, c)
		}
	}
	if len(missing) > 0 {
		return fail("boot without cgroup_disable, or with cgroup_enable="+missing[0], "version 2 without %s: jobs' limits cannot be enforced", strings.Join(missing, ", "))
	}
	out := ok("version 2 with %s; devices by BPF", strings.Join(have, ", "))
	if !slices.Contains(have, "cpuset") {
		out = append(out, warn("boot with cgroup_enable=cpuset", "no cpuset: containers.cpuset has no effect")...)
	}
	if h.exists("/sys/fs/cgroup/dmem.capacity") {
		out = append(out, ok("dmem: the kernel can cap GPU memory of drivers that support it")...)
	}
	return out
}

func separateGroups(h *Host, v1 map[string]string) []Line {
	var missing []string
	for _, c := range []string{"memory", "cpu", "pids", "devices", "freezer"} {
		if v1[c] == "" {
			missing = append(missing, c)
		}
	}
	if len(missing) > 0 {
		return fail("mount version 2 (systemd.unified_cgroup_hierarchy=1), or the missing controllers of version 1", "version 1 without %s: jobs' limits cannot be enforced", strings.Join(missing, ", "))
	}
	out := ok("version 1 with memory, cpu, pids, devices, freezer; version 2 reports more about out-of-memory kills")
	if !h.exists(filepath.Join(v1["memory"], "memory.memsw.limit_in_bytes")) && strings.Count(h.read("/proc/swaps"), "\n") > 1 {
		out = append(out, fail("boot with swapaccount=1, or turn swap off", "swap is on but not accounted: a job can use it beyond its memory limit")...)
	}
	return out
}

func swap(_ context.Context, h *Host, _ *Subject) []Line {
	var total int64
	n := 0
	for i, line := range slices.Collect(strings.Lines(h.read("/proc/swaps"))) {
		f := strings.Fields(line)
		if i == 0 || len(f) < 3 {
			continue
		}
		kib, err := strconv.ParseInt(f[2], 10, 64)
		if err == nil {
			total, n = total+kib, n+1
		}
	}
	if n == 0 {
		return ok("none")
	}
	return ok("%d MiB; jobs get none of it", total>>10)
}

// Clocks that differ by more than this are suspicious; a certificate is
// dated back five minutes, so beyond that nothing works.
const (
	clockWarn = 500 * time.Millisecond
	clockFail = 60 * time.Second
)

func clocks(ctx context.Context, h *Host, s *Subject) []Line {
	type source struct {
		addr string
		ask  func(context.Context, string) (Clock, error)
	}
	var list []source
	add := func(ask func(context.Context, string) (Clock, error), addrs ...string) {
		for _, a := range addrs {
			list = append(list, source{a, ask})
		}
	}
	switch {
	case s.Agent != nil:
		add(h.NodeClock, s.Agent.Coordinators...)
	case s.Coordinator != nil:
		for _, p := range s.Coordinator.Peers {
			if p.ID != s.Coordinator.ID {
				add(h.NodeClock, p.Addr)
			}
		}
		if len(list) == 0 {
			return ok("the only coordinator: none to compare with")
		}
	case s.is(Login):
		add(h.UserClock, s.Sockets...)
	}
	results := make([][]Line, len(list))
	each(len(list), func(i int) {
		c, err := list[i].ask(ctx, list[i].addr)
		if err != nil {
			results[i] = warn("check that it runs, and the findings on ports and certificates", "%s does not report its time: %v", list[i].addr, err)
			return
		}
		results[i] = clockLine(list[i].addr, c)
	})
	return slices.Concat(results...)
}

func clockLine(addr string, c Clock) []Line {
	ms := func(d time.Duration) string { // no minus sign before zero
		return fmt.Sprintf("%.1f ms", float64(d.Round(100*time.Microsecond).Microseconds())/1000)
	}
	text := fmt.Sprintf("%s is %s ahead, give or take %s", addr, ms(c.Ahead), ms(c.Bound))
	const fix = "run chrony or the like on both, with the same servers"
	switch off := max(c.Ahead, -c.Ahead) - c.Bound; {
	case off > clockFail:
		return fail(fix, "%s", text)
	case off > clockWarn:
		return warn(fix, "%s", text)
	}
	return ok("%s", text)
}

// each runs f for 0 to n-1 concurrently.
func each(n int, f func(int)) {
	done := make(chan struct{}, n)
	for i := range n {
		go func() { f(i); done <- struct{}{} }()
	}
	for range n {
		<-done
	}
}

// portTime bounds a connection; a firewall that drops packets does not answer.
const portTime = 3 * time.Second

func ports(ctx context.Context, h *Host, s *Subject) []Line {
	ctx, cancel := context.WithTimeout(ctx, portTime)
	defer cancel()
	var dial []string
	var out []Line
	if s.Agent != nil {
		dial = append(dial, s.Agent.Coordinators...)
		out = append(out, listening(h, "gossip.addr", s.Agent.Gossip.Addr, "tcp", "udp")...)
		out = append(out, listening(h, "listen.metrics", s.Agent.Listen.Metrics, "tcp")...)
	}
	if c := s.Coordinator; c != nil {
		for _, p := range c.Peers {
			if p.ID != c.ID {
				dial = append(dial, p.Addr)
			}
		}
		out = append(out, listening(h, "listen.addr", c.Listen.Addr, "tcp")...)
		out = append(out, listening(h, "gossip.addr", c.Gossip.Addr, "tcp", "udp")...)
		out = append(out, listening(h, "listen.metrics", c.Listen.Metrics, "tcp")...)
	}
	if s.is(Login) {
		out = append(out, sockets(ctx, h, s)...)
	}
	slices.Sort(dial)
	dial = slices.Compact(dial)
	results := make([][]Line, len(dial))
	each(len(dial), func(i int) {
		began := time.Now()
		if err := h.Dial(ctx, "tcp", dial[i]); err != nil {
			results[i] = fail("check that the coordinator runs there, and that no firewall blocks 7070/tcp", "coordinator %s cannot be reached: %v", dial[i], err)
			return
		}
		results[i] = ok("coordinator %s answers in %.1f ms", dial[i], float64(time.Since(began).Microseconds())/1000)
	})
	return slices.Concat(append(results, gossipPeers(ctx, h, s), out)...)
}

// gossipPeers tries the ports that gossip joins through. Without them
// everything works, only slower.
func gossipPeers(ctx context.Context, h *Host, s *Subject) []Line {
	var peers []string
	if s.Agent != nil && s.Agent.Gossip.Addr != "" {
		peers = append(peers, s.Agent.Gossip.Join...)
	}
	if s.Coordinator != nil && s.Coordinator.Gossip.Addr != "" {
		peers = append(peers, s.Coordinator.Gossip.Join...)
	}
	slices.Sort(peers)
	peers = slices.Compact(peers)
	failed := make([]error, len(peers))
	each(len(peers), func(i int) { failed[i] = h.Dial(ctx, "tcp", peers[i]) })
	var out []Line
	for i, err := range failed {
		if err != nil {
			out = append(out, warn("allow 7072/tcp and 7072/udp", "gossip port %s cannot be reached: %v", peers[i], err)...)
		}
	}
	if len(out) == 0 && len(peers) > 0 {
		return ok("%d gossip ports answer", len(peers))
	}
	return out
}

// sockets tries those that users' commands use; one that answers is enough.
func sockets(ctx context.Context, h *Host, s *Subject) []Line {
	var good, bad []Line
	for _, p := range s.Sockets {
		if err := h.Dial(ctx, "unix", p); err != nil {
			bad = append(bad, fail("systemctl start berth-coordinator there, or name another socket in BERTH_SOCKET", "socket %s does not answer: %v", p, err)...)
			continue
		}
		good = append(good, ok("socket %s answers", p)...)
	}
	if len(good) > 0 {
		for i := range bad {
			bad[i].Status = Warn
		}
	}
	return append(good, bad...)
}

// listening reports whether an address is free. An address in use is
// expected while the daemon runs.
func listening(h *Host, key, addr string, networks ...string) []Line {
	if addr == "" {
		return nil
	}
	for _, n := range networks {
		switch err := h.Listen(n, addr); {
		case err == nil:
		case strings.Contains(err.Error(), "in use"):
			return ok("%s %s is in use, as it is while the daemon runs", key, addr)
		default:
			return fail("give an address of this machine, and a port that its user may open", "%s %s/%s cannot be listened on: %v", key, addr, n, err)
		}
	}
	return ok("%s %s is free", key, addr)
}

// users checks where names come from.
func users(_ context.Context, h *Host, s *Subject) []Line {
	var sources []string
	for line := range strings.Lines(h.read("/etc/nsswitch.conf")) {
		line, _, _ = strings.Cut(line, "#")
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "passwd:"); ok {
			sources = strings.Fields(rest)
		}
	}
	if slices.Contains(sources, "sss") && !h.exists("/var/lib/sss/pipes/nss") {
		return fail("systemctl enable --now sssd", "names come from sss, but sssd is not running: its users are unknown")
	}
	uid := "65534"
	if s.Agent != nil && len(s.Agent.Users.Admins) > 0 {
		if _, err := strconv.Atoi(s.Agent.Users.Admins[0]); err == nil {
			uid = s.Agent.Users.Admins[0]
		}
	}
	began := h.Now()
	name, err := h.LookupUser(uid)
	took := h.Now().Sub(began)
	const fix = "getent passwd must answer for the users of jobs; see nsswitch.conf, sssd, nslcd"
	switch {
	case err != nil:
		return fail(fix, "uid %s is unknown here: %v", uid, err)
	case took > time.Second:
		return warn("let sssd or nscd cache names", "uid %s is %s, and that took %.1f s: every launch waits for it", uid, name, took.Seconds())
	}
	if len(sources) == 0 {
		sources = []string{"files"}
	}
	return ok("from %s; uid %s is %s", strings.Join(sources, " "), uid, name)
}

// homes checks where users' files are.
func homes(_ context.Context, h *Host, _ *Subject) []Line {
	m, found := h.mountOf("/home")
	if !found {
		return warn("", "/proc/self/mountinfo does not say what holds /home")
	}
	var out []Line
	if slices.Contains(m.options, "noexec") {
		out = append(out, warn("mount it with exec, or have users keep programs elsewhere", "/home (%s) is noexec: scripts and programs there do not run", m.kind)...)
	}
	if slices.Contains(m.options, "ro") {
		out = append(out, fail("mount it rw", "/home (%s) is read-only: jobs cannot write their output there", m.kind)...)
	}
	switch {
	case strings.HasPrefix(m.kind, "nfs") && slices.Contains(m.options, "soft"):
		out = append(out, warn("mount it hard", "/home is %s, mounted soft: a busy server corrupts jobs' files", m.kind)...)
	case networked(m.kind):
		out = append(out, ok("/home is %s; files there are opened as the user, so root_squash is no obstacle", m.kind)...)
	case len(out) == 0:
		out = append(out, ok("/home is %s", m.kind)...)
	}
	return out
}

// scripts checks the directory that every user must reach and only root may change.
func scripts(_ context.Context, h *Host, s *Subject) []Line {
	if s.Agent == nil || s.Agent.Jobs.Scripts == "" {
		return nil
	}
	dir := s.Agent.Jobs.Scripts
	for p := filepath.Dir(dir); ; p = filepath.Dir(p) {
		info, err := statOwner(h.path(p))
		switch {
		case err != nil && p != "/":
		case err != nil:
			return fail("", "jobs.scripts: %v", err)
		case info.uid != 0 || info.mode&0o022 != 0 && info.mode&0o1000 == 0:
			return fail(fmt.Sprintf("chown root %s && chmod 755 %s", p, p), "jobs.scripts %s: users other than root can change %s", dir, p)
		case info.mode&0o001 == 0:
			return fail("chmod 755 "+p, "jobs.scripts %s: users cannot enter %s", dir, p)
		}
		if p == "/" {
			break
		}
	}
	if m, found := h.mountOf(dir); found && slices.Contains(m.options, "noexec") {
		return warn("name another directory", "jobs.scripts %s is on a file system that is noexec: scripts run only through their interpreter", dir)
	}
	return ok("%s: readable by every user, writable only by root", dir)
}

// agentOf returns the agent's configuration, or the defaults if it is
// invalid, so that the rest can be checked.
func agentOf(s *Subject) *config.Agent {
	if s.Agent != nil {
		return s.Agent
	}
	cfg := config.DefaultAgent()
	return &cfg
}
