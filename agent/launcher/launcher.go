// Package launcher turns an assignment into what a runtime needs to run it: the user, the
// environment with the variables of Slurm, torch and MPI, the script and the files next to
// it, the output files, the ranks. The caller says which GPUs were granted.
package launcher

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/berth-scheduler/berth/agent/gpu/caps"
	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/outputpath"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// Config configures what a Launcher gives the jobs of its node.
type Config struct {
	Node cluster.NodeID
	// Scripts is the directory for the batch scripts of attempts. Every user whose jobs run
	// here must be able to reach it; "" refuses batch jobs.
	Scripts string
	// Rooms gives the files of each attempt in Scripts a file system of their own, of
	// RoomMiB.
	Rooms bool
	// Tools are commands for jobs written for Slurm; optional.
	Tools Tools
	// Users resolves the users that jobs run as, Networks configures what they see of the
	// node's network.
	Users    Users
	Networks Networks
	// Data returns where a data set is on this node, "" if it is not; nil means that the
	// node has none.
	Data func(name string) string
	// Env is added to every job's environment; the job's own wins. Frameworks is what
	// frameworks are told about a shared GPU.
	Env        []string
	Frameworks caps.EnvConfig
	// Grace is the time between SIGTERM and SIGKILL for a job that sets none.
	Grace time.Duration
}

// Launcher turns assignments into what a runtime needs to run them. It keeps no state
// except the files that belong to an attempt.
type Launcher struct {
	cfg   Config
	ready atomic.Bool // the directory of scripts exists
}

// New returns a Launcher, and places the commands that jobs find.
func New(cfg Config) (*Launcher, error) {
	if err := cfg.placeTools(); err != nil {
		return nil, err
	}
	return &Launcher{cfg: cfg}, nil
}

// Cards is what an attempt was granted of the node's GPUs.
type Cards struct {
	// Env is set by whatever granted them; Caps is what only the agent may say about the
	// enforcement of the job's shares. Caps wins over everything.
	Env, Caps []string
	// Devices are the names of the GPUs, Mounts what an image job needs to reach the server
	// that shares them.
	Devices []string
	Mounts  []launch.Mount
	// ShareMiB is the smallest share of a GPU that other jobs use too, 0 without any, and
	// TotalMiB the memory of that GPU.
	ShareMiB, TotalMiB int64
}

// Launch resolves a user's assignment into what a runtime needs, and writes the files that
// its job expects.
func (la *Launcher) Launch(as *nodev1.Assignment, user User, cards *Cards) (*launch.Launch, error) {
	l := &launch.Launch{
		ID: conv.AttemptOf(as), Token: cluster.Token(as.Token),
		UID: as.Uid, GID: as.Gid, Groups: user.Groups,
		Image: as.Image, MemBytes: as.MemMib << 20, CPUMilli: as.CpuMilli, WeighCores: as.WeighCores,
		CDIDevices: cards.Devices, Mounts: cards.Mounts,
	}
	for _, arg := range as.Command {
		l.Args = append(l.Args, string(arg))
	}
	submitDir := submitDirOf(as, user)
	l.Dir = submitDir
	if as.Image != "" {
		l.Dir = "/" // the submit directory is the host's; an image starts at its root
	}
	l.Env = la.capEnv(la.jobEnv(as, user, submitDir, cards.Env), cards)
	switch {
	case RestOfBatch(as):
		la.placeHold(l, false)
	case len(as.Script) > 0:
		if err := la.placeScript(l, as); err != nil {
			return nil, err
		}
	}
	if len(as.Script) > 0 {
		la.imageTools(l)
	}
	if err := la.placeCredential(l, as); err != nil {
		return nil, fmt.Errorf("write the job's credential: %w", err)
	}
	if err := la.placeProgress(l, as); err != nil {
		return nil, err
	}
	if err := la.contain(l, as); err != nil {
		return nil, err
	}
	la.placeData(l, as)
	la.setOutput(l, as, submitDir)
	l.Truncate = as.Truncate
	la.placeRanks(l, as)
	if l.Ranks != nil && l.Ranks.Hold != nil { // what runs in it has its own outputs
		l.Stdin, l.Stdout, l.Stderr = "", os.DevNull, os.DevNull
	}
	return l, nil
}

// User returns the user that an attempt runs as.
func (la *Launcher) User(as *nodev1.Assignment) (User, error) {
	user, err := la.cfg.Users.Resolve(as.GetUid(), as.GetGid(), as.GetUser())
	if err != nil {
		return User{}, &launch.Error{Code: 125, Reason: "USER", Err: err}
	}
	return user, nil
}

// Outline returns only what is needed to look at an attempt: its user, its directory and
// its output files.
func (la *Launcher) Outline(as *nodev1.Assignment) (*launch.Launch, error) {
	user, err := la.cfg.Users.Resolve(as.GetUid(), as.GetGid(), as.GetUser())
	if err != nil {
		return nil, err
	}
	l := &launch.Launch{
		ID: conv.AttemptOf(as), Token: cluster.Token(as.GetToken()), UID: as.GetUid(), GID: as.GetGid(), Groups: user.Groups,
		Image: as.GetImage(), Dir: submitDirOf(as, user),
	}
	la.setOutput(l, as, l.Dir)
	return l, nil
}

// capEnv returns env with the agent's variables about the enforcement of the job's shares,
// in place of any that were already there.
func (la *Launcher) capEnv(env []string, cards *Cards) []string {
	kept := env[:0:0]
	for _, line := range env {
		if key, _, _ := strings.Cut(line, "="); !caps.Reserved(key) {
			kept = append(kept, line)
		}
	}
	kept = append(kept, cards.Caps...)
	if cards.ShareMiB == 0 {
		return kept
	}
	return caps.FrameworkEnv(kept, la.cfg.Frameworks, cards.ShareMiB, cards.TotalMiB)
}

// jobEnv returns the user's own environment, completed by what a login would set and by our
// variables, which win.
func (la *Launcher) jobEnv(as *nodev1.Assignment, u User, submitDir string, gpuEnv []string) []string {
	var env []string
	has := map[string]int{}
	set := func(line string) {
		key, _, _ := strings.Cut(line, "=")
		if i, ok := has[key]; ok {
			env[i] = line
			return
		}
		has[key] = len(env)
		env = append(env, line)
	}
	for _, line := range []string{
		"PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
		"HOME=" + u.Home, "USER=" + u.Name, "LOGNAME=" + u.Name, "SHELL=" + u.Shell,
	} {
		if as.Image == "" || strings.HasPrefix(line, "HOME=") || strings.HasPrefix(line, "USER=") {
			set(line)
		}
	}
	for _, line := range la.cfg.Env {
		set(line)
	}
	for _, line := range as.Env {
		if !steersHooks(string(line)) {
			set(string(line))
		}
	}
	for _, line := range gpuEnv {
		set(line)
	}
	id := conv.AttemptOf(as)
	for _, line := range []string{
		"BERTH_JOB_ID=" + id.Job.String(), "BERTH_JOB_NAME=" + as.Name, "BERTH_JOB_PARTITION=" + as.Partition,
		"BERTH_ATTEMPT=" + id.String(), "BERTH_NODE=" + string(la.cfg.Node),
		"BERTH_RESTART_COUNT=" + strconv.FormatUint(uint64(max(1, as.Attempt)-1), 10),
		"BERTH_SUBMIT_DIR=" + submitDir, "BERTH_JOB_GPUS=" + strconv.Itoa(len(as.Gpus)),
		"BERTH_DEVICE=" + device(as),
		"BERTH_CPUS=" + strconv.FormatInt(max(1, as.CpuMilli/1000), 10),
		"BERTH_MEM_MIB=" + strconv.FormatInt(as.MemMib, 10),
	} {
		set(line)
	}
	for _, line := range arrayEnv(as) { // commands that are not scripts need it too
		set(line)
	}
	if len(as.Script) > 0 {
		for _, line := range la.slurmEnv(as) {
			set(line)
		}
	}
	for _, line := range rankEnv(as) {
		set(line)
	}
	if len(as.Script) > 0 {
		return la.toolsEnv(env, as.Image)
	}
	return env
}

// device tells a job what it runs on: a job that accepts either a CPU or a GPU must ask.
func device(as *nodev1.Assignment) string {
	if len(as.Gpus) == 0 {
		return "cpu"
	}
	return "gpu"
}

// DefaultOutput is where a job's output goes when its owner names no file, relative to the
// directory it was submitted from, as in Slurm.
const DefaultOutput = "berth-%j.out"

// defaultTaskOutput is the same for the tasks of an array.
const defaultTaskOutput = "berth-%A_%a.out"

func (la *Launcher) setOutput(l *launch.Launch, as *nodev1.Assignment, submitDir string) {
	expand := func(pattern []byte) string {
		p := expandPath(string(pattern), as, string(la.cfg.Node), "")
		if !filepath.IsAbs(p) {
			p = filepath.Join(submitDir, p)
		}
		return p
	}
	l.Stdout = DefaultOutput
	if as.Array != nil {
		l.Stdout = defaultTaskOutput
	}
	if len(as.Stdout) > 0 {
		l.Stdout = string(as.Stdout)
	}
	l.Stdout = expand([]byte(l.Stdout))
	l.Stderr = l.Stdout
	if len(as.Stderr) > 0 {
		l.Stderr = expand(as.Stderr)
	}
	if len(as.Stdin) > 0 && string(as.Stdin) != "/dev/null" {
		l.Stdin = expand(as.Stdin)
	}
}

// expandPath replaces Slurm's patterns in an output path, for a node and a rank; "" means
// the node's first process.
func expandPath(p string, as *nodev1.Assignment, node, rank string) string {
	n := outputpath.Names{
		Job: cluster.JobID(as.Job), Array: cluster.JobID(as.GetArray().GetJob()), Name: as.Name, User: as.User,
		Node: node, NodeRank: int(as.GetRanks().GetNodeRank()), Rank: rank,
	}
	if as.Array != nil {
		n.Task = &as.Array.Task
	}
	if rank == "" {
		n.Rank = strconv.FormatUint(uint64(as.GetRanks().GetNodeRank()*as.GetRanks().GetTasks()), 10)
	}
	return outputpath.Expand(p, &n)
}

// steersHooks reports whether a variable is an instruction to the NVIDIA toolkit rather
// than to the job's own programs: neither users nor images may give those. What CUDA's
// libraries read, such as NVIDIA_TF32_OVERRIDE, is left to the job.
func steersHooks(line string) bool {
	name, _, _ := strings.Cut(line, "=")
	switch name {
	case "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_DISABLE_REQUIRE", "NVIDIA_IMEX_CHANNELS",
		"NVIDIA_GDS", "NVIDIA_MOFED", "NVIDIA_GDRCOPY", "NVIDIA_NVSWITCH", "NVIDIA_RUNTIME_SET_MEMLOCK":
		return true
	}
	for _, prefix := range []string{"NVIDIA_REQUIRE_", "NVIDIA_MIG_", "NVIDIA_GPU_MEMORY_", "NVIDIA_CTK_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
