package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/cluster"
)

// Coordinator is the configuration of berth coordinator. A field's key is its yaml
// tags, joined by dots; units are in the names or are those of time.Duration's text
// form.
type Coordinator struct {
	// ID is this coordinator's name, which must be the one in its certificate.
	ID         string            `yaml:"id"`
	Cluster    Cluster           `yaml:"cluster"`
	Listen     CoordinatorListen `yaml:"listen"`
	Data       Data              `yaml:"data"`
	Disk       Disk              `yaml:"disk"`
	Peers      []Peer            `yaml:"peers"`
	Raft       Raft              `yaml:"raft"`
	TLS        CoordinatorTLS    `yaml:"tls"`
	Gossip     Gossip            `yaml:"gossip"`
	Users      Users             `yaml:"users"`
	Scheduling Scheduling        `yaml:"scheduling"`
	Lease      Lease             `yaml:"lease"`
	Power      PowerSaving       `yaml:"power_saving"`
	Energy     EnergySignal      `yaml:"energy_signal"`
	Limits     Limits            `yaml:"limits"`
	Learner    Learner           `yaml:"learner"`
	History    History           `yaml:"history"`
	Notify     Notify            `yaml:"notify"`
	Log        Log               `yaml:"log"`
}

// Cluster names the cluster. The id is in every certificate and never changes; the name
// is for people.
type Cluster struct {
	ID   string `yaml:"id"`
	Name string `yaml:"name"`
}

// CoordinatorListen says where a coordinator is reached.
type CoordinatorListen struct {
	// Addr is the TLS port of Raft and gRPC.
	Addr string `yaml:"addr"`
	// Advertise is what others dial; empty means this coordinator's entry in peers.
	Advertise string `yaml:"advertise"`
	// Socket is for users of this machine; empty disables it.
	Socket string `yaml:"socket"`
	// Metrics is plain HTTP; empty disables it.
	Metrics string `yaml:"metrics"`
	// Web is the web page; empty disables it. On a loopback address it is plain HTTP, on
	// any other TLS. WebNames are names by which browsers may request it besides those of
	// the addresses; the first is used in links.
	Web      string   `yaml:"web"`
	WebNames []string `yaml:"web_names"`
	WebProxy WebProxy `yaml:"web_proxy"`
}

// Data is where a daemon keeps its persistent state.
type Data struct {
	Dir string `yaml:"dir"`
}

// Disk says at how little room left under data.dir a coordinator accepts no more: a
// fraction of the file system or a number, whichever is less.
type Disk struct {
	// Below Low, what users send and the log would store is refused.
	LowPercent int `yaml:"low_percent"`
	LowMiB     int `yaml:"low_mib"`
	// Below Full, nothing is written to the log.
	FullPercent int `yaml:"full_percent"`
	FullMiB     int `yaml:"full_mib"`
}

// Peer is one coordinator of the cluster, including this one.
type Peer struct {
	ID   string `yaml:"id"`
	Addr string `yaml:"addr"`
}

// Raft holds the timeouts of consensus.
type Raft struct {
	Heartbeat         time.Duration `yaml:"heartbeat"`
	Election          time.Duration `yaml:"election"`
	Lease             time.Duration `yaml:"lease"`
	SnapshotThreshold int           `yaml:"snapshot_threshold"` // log entries
	SnapshotInterval  time.Duration `yaml:"snapshot_interval"`  // between checks whether one is due
}

// CoordinatorTLS names a coordinator's certificates and keys.
type CoordinatorTLS struct {
	CA    string `yaml:"ca"`
	Cert  string `yaml:"cert"`
	Key   string `yaml:"key"`
	CAKey string `yaml:"ca_key"` // empty: this coordinator issues no certificates
	// WebCert and WebKey are what browsers are shown; empty means the coordinator's own,
	// which browsers do not trust.
	WebCert string `yaml:"web_cert"`
	WebKey  string `yaml:"web_key"`
}

// Gossip says where memberlist listens; an empty address disables it.
type Gossip struct {
	Addr    string `yaml:"addr"`
	KeyFile string `yaml:"key_file"`
	// Join lists the gossip addresses of the coordinators.
	Join []string `yaml:"join"`
}

// Users says who may use the cluster.
type Users struct {
	AllowRoot bool `yaml:"allow_root"`
	MinUID    int  `yaml:"min_uid"`
	// Admins are user names or numeric uids.
	Admins []string `yaml:"admins"`
}

// Scheduling holds the site's policy.
type Scheduling struct {
	MaxShares         int           `yaml:"max_shares"`   // jobs on one GPU
	MaxSlowdown       float64       `yaml:"max_slowdown"` // factor for any job that shares a GPU; 0 means no limit
	Overcommit        float64       `yaml:"overcommit"`   // up to how many GPUs' worth predicted compute on one may add up, from 1 on
	Interval          time.Duration `yaml:"interval"`     // longest time between full passes
	MemoryHeadroomMiB int           `yaml:"memory_headroom_mib"`
	// Fairshare is how much fair share counts against length in the order of waiting jobs,
	// from 0, not at all, to 1, alone. It counts only if there are accounts.
	Fairshare float64 `yaml:"fairshare"`
	// Trading lets accounts trade GPU types by what their jobs gain, see docs/accounts.md.
	Trading bool `yaml:"trading"`
	// Prices are TYPE=PRICE for an hour of a whole GPU, and cpu=PRICE for an hour
	// of a core.
	Prices []string `yaml:"prices"`
	// Policy is a placement of package policies, or "placement+order".
	Policy string `yaml:"policy"`
	// Policies are PARTITION=POLICY for partitions with another one.
	Policies []string `yaml:"policies"`
	// Tenants are guaranteed parts of the cluster; see docs/tenants.md.
	Tenants []Tenant `yaml:"tenants"`
	// PreemptEvery is the least time between two passes that preempt, and PreemptAfter how
	// long an attempt runs before it may be preempted.
	PreemptEvery time.Duration `yaml:"preempt_every"`
	PreemptAfter time.Duration `yaml:"preempt_after"`
	// PreemptWait is how long a job waits before it may take the place of running jobs that
	// have much more left to do; 0 disables that.
	PreemptWait time.Duration `yaml:"preempt_wait"`
	Sizing      string        `yaml:"sizing"` // of jobs of elastic size, see docs/elastic.md
	// LASQueues are the limits of the queues of the order las, as time on one GPU,
	// ascending.
	LASQueues []string `yaml:"las_queues"`
	// GangTimeout is how long the nodes of a gang may take until all are ready to start it,
	// images pulled. GangPorts is where the processes of a job with several meet,
	// FIRST-LAST.
	GangTimeout time.Duration `yaml:"gang_timeout"`
	GangPorts   string        `yaml:"gang_ports"`
}

// Ports returns the first and the last of GangPorts.
func (s *Scheduling) Ports() (first, last uint16, err error) {
	a, b, ok := strings.Cut(s.GangPorts, "-")
	lo, err1 := strconv.ParseUint(a, 10, 16)
	hi, err2 := strconv.ParseUint(b, 10, 16)
	if !ok || err1 != nil || err2 != nil || lo < 1024 || hi < lo {
		return 0, 0, fmt.Errorf("is %.40q, want FIRST-LAST from 1024 to 65535, such as 20000-29999", s.GangPorts)
	}
	return uint16(lo), uint16(hi), nil
}

// LASLimits returns the limits of the queues of the order las.
func (s *Scheduling) LASLimits() ([]time.Duration, error) {
	var out []time.Duration
	for _, text := range s.LASQueues {
		d, err := time.ParseDuration(text)
		if err != nil || d < time.Second || d > 10000*time.Hour {
			return nil, fmt.Errorf("holds %.80q, want times of one GPU from 1s to 10000h, such as 54m10s", text)
		}
		if len(out) > 0 && d <= out[len(out)-1] {
			return nil, fmt.Errorf("has %s after %s, want ascending times", d, out[len(out)-1])
		}
		out = append(out, d)
	}
	if len(out) == 0 || len(out) > 8 {
		return nil, fmt.Errorf("has %d times, want 1 to 8", len(out))
	}
	return out, nil
}

// PolicyOf returns the policy of each partition that has its own, and what is wrong
// with each item of policies, by index.
func (s *Scheduling) PolicyOf() (of map[string]string, wrong map[int]string) {
	of, wrong = map[string]string{}, map[int]string{}
	for i, line := range s.Policies {
		name, policy, ok := strings.Cut(line, "=")
		if !ok || name == "" || policy == "" {
			wrong[i] = fmt.Sprintf("is %.80q, want PARTITION=POLICY such as debug=slot+fifo", line)
			continue
		}
		if err := cluster.CheckPartitionName(name); err != nil {
			wrong[i] = fmt.Sprintf("is %.80q: %v", line, err)
			continue
		}
		if _, twice := of[name]; twice {
			wrong[i] = fmt.Sprintf("names partition %.80q twice", name)
			continue
		}
		of[name] = policy
	}
	return of, wrong
}

// PerHourMilli returns the price of an hour of a GPU of each type, in thousandths.
func (s *Scheduling) PerHourMilli() (map[string]int64, error) {
	out := map[string]int64{}
	for _, line := range s.Prices {
		name, text, ok := strings.Cut(line, "=")
		price, err := strconv.ParseFloat(text, 64)
		if !ok || name == "" || err != nil || !(price > 0 && price <= 1e6) {
			return nil, fmt.Errorf("holds %.80q, want TYPE=PRICE with a price of a GPU-hour above 0 and up to 1000000, such as A100-SXM4-80GB=2.5, or cpu=0.03 for that of a core-hour", line)
		}
		if _, twice := out[name]; twice {
			return nil, fmt.Errorf("names %.80q twice", name)
		}
		out[name] = int64(math.Round(1000 * price))
	}
	return out, nil
}

// Lease says how long a silent agent is trusted.
type Lease struct {
	Agent time.Duration `yaml:"agent"`
}

// Limits bounds what all users together may request.
type Limits struct {
	QueuedTotal int `yaml:"queued_total"`
	// JobsPerUser is how many jobs of one user may wait or run.
	JobsPerUser int `yaml:"jobs_per_user"`
	// SpecMiBTotal is how much environments, scripts and arguments of all jobs that wait or
	// run may take, SpecMiBPerUser those of one user.
	SpecMiBTotal   int `yaml:"spec_mib_total"`
	SpecMiBPerUser int `yaml:"spec_mib_per_user"`
	// ArrayTasks is how many tasks one job array may have.
	ArrayTasks int `yaml:"array_tasks"`
	// StreamsTotal bounds the shells, commands and followed outputs that one coordinator
	// carries at once, StreamsPerUser those of one user.
	StreamsTotal   int `yaml:"streams_total"`
	StreamsPerUser int `yaml:"streams_per_user"`
	// RequestsPerSecond is how many requests of one user are answered in the long run,
	// RequestsPerUser how many may be in progress at once.
	RequestsPerSecond int `yaml:"requests_per_second"`
	RequestsPerUser   int `yaml:"requests_per_user"`
	// RequestKiBPerSecond is how many KiB of requests one user may send in the long run,
	// eight times as many at once.
	RequestKiBPerSecond int `yaml:"request_kib_per_second"`
	// ReadsPerUser bounds lists, history, reports, explanations and predictions in progress
	// at once of one user, ReadsTotal those of all.
	ReadsPerUser int `yaml:"reads_per_user"`
	ReadsTotal   int `yaml:"reads_total"`
	// ReadMsPerSecond is how many milliseconds a second these, and watches, of one user may
	// compute in the long run, with bursts of five seconds' worth.
	ReadMsPerSecond int `yaml:"read_ms_per_second"`
	// ConnectionsPerUser is how many connections to a coordinator's socket one user may
	// have open.
	ConnectionsPerUser int `yaml:"connections_per_user"`
}

// Learner says when the leader learns from measurements.
type Learner struct {
	MinSamples int           `yaml:"min_samples"` // new ones before it does
	Interval   time.Duration `yaml:"interval"`    // least time between two fits
}

// History says which finished jobs are kept: in this coordinator's store and, for a
// cluster that is created, in the state that all coordinators replicate.
type History struct {
	Keep    time.Duration `yaml:"keep"`
	MaxJobs int           `yaml:"max_jobs"`
	InState int           `yaml:"in_state"`
}

// Log says what is logged and how.
type Log struct {
	Level  string `yaml:"level"`
	Format string `yaml:"format"`
}

// DefaultCoordinator returns the configuration of an empty file. It lacks id and
// cluster.id, which have no default.
func DefaultCoordinator() Coordinator {
	return Coordinator{
		Listen: CoordinatorListen{Addr: "0.0.0.0:7070", Socket: "/run/berth/berth.sock", Metrics: "127.0.0.1:7071"},
		Data:   Data{Dir: "/var/lib/berth/coordinator"},
		Disk:   Disk{LowPercent: 5, LowMiB: 1024, FullPercent: 1, FullMiB: 256},
		// Heartbeats take the same path as log entries and wait behind a slow disk, so the
		// timeouts are longer than raft's own defaults.
		Raft: Raft{Heartbeat: 1500 * time.Millisecond, Election: 1500 * time.Millisecond, Lease: 1200 * time.Millisecond, SnapshotThreshold: 8192, SnapshotInterval: time.Minute},
		TLS: CoordinatorTLS{
			CA: "/etc/berth/tls/ca.crt", Cert: "/etc/berth/tls/coordinator.crt",
			Key: "/etc/berth/tls/coordinator.key", CAKey: "/etc/berth/tls/ca.key",
		},
		Gossip: Gossip{Addr: "0.0.0.0:7072", KeyFile: "/etc/berth/gossip.key"},
		Users:  Users{MinUID: 1000},
		Scheduling: Scheduling{MaxShares: 3, MaxSlowdown: 1.5, Overcommit: 1, Interval: time.Second, MemoryHeadroomMiB: 512, Policy: "ffd", Sizing: "marginal",
			PreemptEvery: time.Minute, PreemptAfter: 10 * time.Minute, PreemptWait: 2 * time.Minute, LASQueues: []string{"54m10s", "2h", "5h"},
			GangTimeout: 10 * time.Minute, GangPorts: "20000-29999"},
		Lease: Lease{Agent: 60 * time.Second},
		Power: usualPower(), Energy: EnergySignal{Every: 10 * time.Minute},
		Limits: Limits{QueuedTotal: 200_000, JobsPerUser: 150_000, SpecMiBTotal: 2048, SpecMiBPerUser: 256, ArrayTasks: 100_000, StreamsTotal: 512, StreamsPerUser: 32,
			RequestsPerSecond: 500, RequestsPerUser: 128, RequestKiBPerSecond: 1024, ReadsPerUser: 4, ReadsTotal: 16, ReadMsPerSecond: 100, ConnectionsPerUser: 256},
		Learner: Learner{MinSamples: 32, Interval: 10 * time.Second},
		History: History{Keep: 90 * 24 * time.Hour, MaxJobs: 1_000_000, InState: 20_000},
		Notify:  Notify{Webhooks: "admins"},
		Log:     Log{Level: "info", Format: "auto"},
	}
}

// AdvertiseAddr returns what others dial to reach this coordinator.
func (c *Coordinator) AdvertiseAddr() string {
	if c.Listen.Advertise != "" {
		return c.Listen.Advertise
	}
	for _, p := range c.Peers {
		if p.ID == c.ID {
			return p.Addr
		}
	}
	return c.Listen.Addr
}

// Validate reports all problems by key, with what is allowed; it reads no
// files. The error is a Problems.
func (c *Coordinator) Validate() error {
	var p Problems
	p.name("id", c.ID)
	p.name("cluster.id", c.Cluster.ID)
	p.text("cluster.name", c.Cluster.Name, 200)
	p.listenAddr("listen.addr", c.Listen.Addr)
	if c.Listen.Advertise != "" || len(c.Peers) == 0 {
		p.dialAddr("listen.advertise", c.AdvertiseAddr())
	}
	p.path("listen.socket", c.Listen.Socket, optional)
	p.optionalAddr("listen.metrics", c.Listen.Metrics)
	p.web(c)
	p.path("data.dir", c.Data.Dir, required)
	p.disk(&c.Disk)
	p.peers(c)
	p.raft(c.Raft)
	p.path("tls.ca", c.TLS.CA, required)
	p.path("tls.cert", c.TLS.Cert, required)
	p.path("tls.key", c.TLS.Key, required)
	p.path("tls.ca_key", c.TLS.CAKey, optional)
	p.gossip(c.Gossip)
	p.users(c.Users)
	c.Scheduling.shares(&p)
	p.span("scheduling.interval", c.Scheduling.Interval, 10*time.Millisecond, time.Minute)
	p.number("scheduling.memory_headroom_mib", c.Scheduling.MemoryHeadroomMiB, 0, 64<<10)
	p.policy("scheduling.policy", c.Scheduling.Policy)
	p.policies("scheduling.policies", &c.Scheduling)
	p.tenants("scheduling.tenants", c.Scheduling.Tenants)
	p.span("scheduling.gang_timeout", c.Scheduling.GangTimeout, time.Second, 24*time.Hour)
	if _, _, err := c.Scheduling.Ports(); err != nil {
		p.addf("scheduling.gang_ports", "%v", err)
	}
	c.Scheduling.fairly(&p)
	p.span("scheduling.preempt_every", c.Scheduling.PreemptEvery, time.Second, time.Hour)
	p.span("scheduling.preempt_after", c.Scheduling.PreemptAfter, time.Second, 24*time.Hour)
	if c.Scheduling.PreemptWait != 0 { // else off
		p.span("scheduling.preempt_wait", c.Scheduling.PreemptWait, time.Second, 24*time.Hour)
	}
	if _, err := c.Scheduling.LASLimits(); err != nil {
		p.addf("scheduling.las_queues", "%v", err)
	}
	if _, err := c.Scheduling.PerHourMilli(); err != nil {
		p.addf("scheduling.prices", "%v", err)
	}
	p.span("lease.agent", c.Lease.Agent, 5*time.Second, time.Hour)
	p.powerSaving(c)
	p.limits(&c.Limits)
	p.number("learner.min_samples", c.Learner.MinSamples, 1, 4096)
	p.span("learner.interval", c.Learner.Interval, time.Second, 24*time.Hour)
	p.span("history.keep", c.History.Keep, time.Hour, 10*365*24*time.Hour)
	p.number("history.max_jobs", c.History.MaxJobs, 1000, 100_000_000)
	p.number("history.in_state", c.History.InState, 1, 1_000_000)
	p.notify(&c.Notify)
	p.log(c.Log)
	return p.err()
}

func (p *Problems) disk(d *Disk) {
	p.number("disk.low_percent", d.LowPercent, 1, 50)
	p.number("disk.low_mib", d.LowMiB, 1, 1<<20)
	p.number("disk.full_percent", d.FullPercent, 1, 50)
	p.number("disk.full_mib", d.FullMiB, 1, 1<<20)
	if d.FullPercent > d.LowPercent {
		p.addf("disk.full_percent", "is %d, want at most disk.low_percent (%d)", d.FullPercent, d.LowPercent)
	}
	if d.FullMiB > d.LowMiB {
		p.addf("disk.full_mib", "is %d, want at most disk.low_mib (%d)", d.FullMiB, d.LowMiB)
	}
}

func (p *Problems) limits(l *Limits) {
	p.number("limits.queued_total", l.QueuedTotal, 1, 1_000_000)
	p.number("limits.jobs_per_user", l.JobsPerUser, 1, 1_000_000)
	p.number("limits.spec_mib_total", l.SpecMiBTotal, 1, 1_000_000)
	p.number("limits.spec_mib_per_user", l.SpecMiBPerUser, 1, 1_000_000)
	p.number("limits.array_tasks", l.ArrayTasks, 1, 1_000_000)
	p.number("limits.streams_total", l.StreamsTotal, 1, 10_000)
	p.number("limits.streams_per_user", l.StreamsPerUser, 1, 10_000)
	p.number("limits.requests_per_second", l.RequestsPerSecond, 1, 1_000_000)
	p.number("limits.requests_per_user", l.RequestsPerUser, 1, 10_000)
	p.number("limits.request_kib_per_second", l.RequestKiBPerSecond, 16, 1_000_000)
	p.number("limits.reads_per_user", l.ReadsPerUser, 1, 1000)
	p.number("limits.reads_total", l.ReadsTotal, 1, 10_000)
	p.number("limits.read_ms_per_second", l.ReadMsPerSecond, 1, 100_000)
	p.number("limits.connections_per_user", l.ConnectionsPerUser, 1, 4096)
}

// Warnings lists what works but is unwise.
func (c *Coordinator) Warnings() []string {
	var w []string
	if n := len(c.Peers); n > 0 && n%2 == 0 {
		w = append(w, "peers: an even number of coordinators survives no more failures than one fewer; use 1, 3 or 5")
	}
	if c.Users.AllowRoot {
		w = append(w, "users.allow_root: jobs of root are root on every node")
	}
	return w
}

// CheckFiles reports, by key, files that are missing, not plain files, or
// keys that others can read. The error is a Problems.
func (c *Coordinator) CheckFiles() error {
	var p Problems
	p.file("tls.ca", c.TLS.CA, false)
	p.file("tls.cert", c.TLS.Cert, false)
	p.file("tls.key", c.TLS.Key, true)
	p.file("tls.ca_key", c.TLS.CAKey, true)
	p.file("tls.web_cert", c.TLS.WebCert, false)
	p.file("tls.web_key", c.TLS.WebKey, true)
	p.file("listen.web_proxy.secret", c.Listen.WebProxy.Secret, true)
	if c.Gossip.Addr != "" {
		p.file("gossip.key_file", c.Gossip.KeyFile, true)
	}
	p.program("power_saving.suspend_program", c.Power.SuspendProgram)
	p.program("power_saving.resume_program", c.Power.ResumeProgram)
	p.dataDir("data.dir", c.Data.Dir)
	return p.err()
}

func (p *Problems) peers(c *Coordinator) {
	if len(c.Peers) == 0 {
		return // a cluster of one
	}
	if len(c.Peers) > 7 {
		p.addf("peers", "has %d coordinators, want 1 to 7; 3 is usual", len(c.Peers))
	}
	ids, addrs, self := map[string]int{}, map[string]int{}, false
	for i, peer := range c.Peers {
		key := indexed("peers", i)
		p.name(key+".id", peer.ID)
		p.dialAddr(key+".addr", peer.Addr)
		if first, dup := ids[peer.ID]; dup {
			p.addf(key+".id", "%q is also the id of peers[%d]; each coordinator needs its own", peer.ID, first)
		}
		if first, dup := addrs[peer.Addr]; dup {
			p.addf(key+".addr", "%q is also the address of peers[%d]; each coordinator needs its own", peer.Addr, first)
		}
		ids[peer.ID], addrs[peer.Addr] = i, i
		if peer.ID != c.ID {
			continue
		}
		self = true
		if c.Listen.Advertise != "" && peer.Addr != "" && c.Listen.Advertise != peer.Addr {
			p.addf("listen.advertise", "is %q, but peers[%d] has %s at %q; leave out listen.advertise, or make them equal",
				c.Listen.Advertise, i, c.ID, peer.Addr)
		}
	}
	if !self && c.ID != "" {
		p.addf("peers", "does not list this coordinator, id %q; list all, including this one", c.ID)
	}
}

func (p *Problems) raft(r Raft) {
	p.span("raft.heartbeat", r.Heartbeat, 50*time.Millisecond, time.Minute)
	p.span("raft.election", r.Election, 50*time.Millisecond, time.Minute)
	p.span("raft.lease", r.Lease, 10*time.Millisecond, time.Minute)
	if r.Heartbeat > 0 && r.Election < r.Heartbeat {
		p.addf("raft.election", "is %v, want at least raft.heartbeat (%v)", r.Election, r.Heartbeat)
	}
	if r.Heartbeat > 0 && r.Lease > r.Heartbeat {
		p.addf("raft.lease", "is %v, want at most raft.heartbeat (%v), else two leaders may serve at once", r.Lease, r.Heartbeat)
	}
	p.number("raft.snapshot_threshold", r.SnapshotThreshold, 64, 1_000_000)
	p.span("raft.snapshot_interval", r.SnapshotInterval, 100*time.Millisecond, time.Hour)
}
