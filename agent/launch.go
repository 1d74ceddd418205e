package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// runtimeFor picks the runtime of an assignment: images need the one that has
// them; nil when there is none.
func (a *Agent) runtimeFor(as *nodev1.Assignment) Runtime {
	if as.GetImage() != "" {
		return a.cfg.Images
	}
	return a.cfg.Host
}

// admit grants an attempt its shares and returns the environment for them.
func (a *Agent) admit(ctx context.Context, as *nodev1.Assignment) ([]string, error) {
	if len(as.Gpus) == 0 {
		// A job that asked for no card should not find one by accident.
		return []string{"CUDA_VISIBLE_DEVICES="}, nil
	}
	if a.cfg.GPUs == nil {
		return nil, &LaunchError{Code: 125, Reason: "GPU", Err: fmt.Errorf("this node has no GPUs, %d were assigned", len(as.Gpus))}
	}
	env, err := a.cfg.GPUs.Admit(ctx, grantOf(as))
	if errors.Is(err, gpu.ErrSilent) || errors.Is(err, gpu.ErrLost) {
		return nil, &LaunchError{Code: 125, Reason: "GPU", Node: true, Err: err}
	}
	if err != nil {
		return nil, fmt.Errorf("grant GPUs: %w", err)
	}
	return env, nil
}

func grantOf(as *nodev1.Assignment) gpu.Grant {
	g := gpu.Grant{Attempt: conv.AttemptOf(as).String(), UID: as.Uid}
	for _, s := range as.Gpus {
		g.Cards = append(g.Cards, gpu.GrantCard{UUID: s.Uuid, MemMiB: s.MemMib, Milli: s.Milli, Exclusive: s.Exclusive})
	}
	return g
}

// regrant tells a provider that keeps shares itself that those of an attempt have
// changed: else it would refuse whoever is placed beside it.
func (a *Agent) regrant(as *nodev1.Assignment) {
	r, ok := a.cfg.GPUs.(gpu.Regranter)
	if !ok {
		return
	}
	if err := r.Regrant(context.Background(), grantOf(as)); err != nil {
		a.log.Warn("cannot change what an attempt is granted of its GPUs", "job", as.Job, "attempt", as.Attempt, "err", err)
	}
}

// socketDir is a provider that jobs reach through a socket in a directory.
type socketDir interface{ SocketDir() string }

// launch resolves an assignment into what a runtime needs.
func (a *Agent) launch(ctx context.Context, as *nodev1.Assignment) (*Launch, error) {
	user, err := a.cfg.Users.Resolve(as.Uid, as.Gid, as.User)
	if err != nil {
		return nil, &LaunchError{Code: 125, Reason: "USER", Err: err}
	}
	gpuEnv, err := a.admit(ctx, as)
	if err != nil {
		return nil, err
	}
	l := &Launch{
		ID: conv.AttemptOf(as), Token: cluster.Token(as.Token),
		UID: as.Uid, GID: as.Gid, Groups: user.Groups,
		Image: as.Image, MemBytes: as.MemMib << 20, CPUMilli: as.CpuMilli,
	}
	for _, arg := range as.Command {
		l.Args = append(l.Args, string(arg))
	}
	submitDir := submitDirOf(as, user)
	l.Dir = submitDir
	if as.Image != "" {
		// The submit directory is the host's; an image begins at its root.
		l.Dir = "/"
		if m, ok := a.cfg.GPUs.(socketDir); ok && len(as.Gpus) > 0 {
			l.Mounts = append(l.Mounts, Mount{Source: m.SocketDir(), Target: m.SocketDir(), Own: true})
		}
	}
	if l.CDIDevices, err = a.devices(as); err != nil {
		return nil, err
	}
	a.mountPipe(l, as)
	if l.Env, err = a.capEnv(ctx, a.jobEnv(as, user, submitDir, gpuEnv), as); err != nil {
		return nil, err
	}
	switch {
	case restOfBatch(as):
		a.placeHold(l, false)
	case len(as.Script) > 0:
		if err := a.placeScript(l, as); err != nil {
			return nil, err
		}
	}
	if len(as.Script) > 0 {
		a.imageTools(l)
	}
	if err := a.contain(l, as); err != nil {
		return nil, err
	}
	a.setOutput(l, as, submitDir)
	l.Truncate = as.Truncate
	a.placeRanks(l, as)
	if l.Ranks != nil && l.Ranks.Hold != nil { // what runs in it has outputs of its own
		l.Stdin, l.Stdout, l.Stderr = "", os.DevNull, os.DevNull
	}
	return l, nil
}

// jobEnv is the user's own environment, completed by what a login would set,
// and by ours, which wins.
func (a *Agent) jobEnv(as *nodev1.Assignment, u User, submitDir string, gpuEnv []string) []string {
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
	for _, line := range a.cfg.Env {
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
		"BERTH_ATTEMPT=" + id.String(), "BERTH_NODE=" + string(a.cfg.Node),
		"BERTH_RESTART_COUNT=" + strconv.FormatUint(uint64(max(1, as.Attempt)-1), 10),
		"BERTH_SUBMIT_DIR=" + submitDir, "BERTH_JOB_GPUS=" + strconv.Itoa(len(as.Gpus)),
		"BERTH_DEVICE=" + device(as),
		"BERTH_CPUS=" + strconv.FormatInt(max(1, as.CpuMilli/1000), 10),
		"BERTH_MEM_MIB=" + strconv.FormatInt(as.MemMib, 10),
	} {
		set(line)
	}
	for _, line := range arrayEnv(as) { // commands that are no script want it, too
		set(line)
	}
	if len(as.Script) > 0 {
		for _, line := range a.slurmEnv(as) {
			set(line)
		}
	}
	for _, line := range rankEnv(as) {
		set(line)
	}
	if len(as.Script) > 0 {
		return a.toolsEnv(env, as.Image)
	}
	return env
}

// device tells a job what it runs on: one that would do with either has to ask.
func device(as *nodev1.Assignment) string {
	if len(as.Gpus) == 0 {
		return "cpu"
	}
	return "gpu"
}

// DefaultOutput is where a job's output goes when its owner names no file,
// beside the directory it was submitted from, as Slurm does.
const DefaultOutput = "berth-%j.out"

// defaultTaskOutput is that of the tasks of an array.
const defaultTaskOutput = "berth-%A_%a.out"

func (a *Agent) setOutput(l *Launch, as *nodev1.Assignment, submitDir string) {
	expand := func(pattern []byte) string {
		p := expandPath(string(pattern), as, string(a.cfg.Node), "")
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

// expandPath replaces Slurm's patterns in an output path, as on a node, with a given
// rank; "" is that of the node's first process.
func expandPath(p string, as *nodev1.Assignment, node, rank string) string {
	n := cluster.OutputNames{
		Job: cluster.JobID(as.Job), Array: cluster.JobID(as.GetArray().GetJob()), Name: as.Name, User: as.User,
		Node: node, NodeRank: int(as.GetRanks().GetNodeRank()), Rank: rank,
	}
	if as.Array != nil {
		n.Task = &as.Array.Task
	}
	if rank == "" {
		n.Rank = strconv.FormatUint(uint64(as.GetRanks().GetNodeRank()*as.GetRanks().GetTasks()), 10)
	}
	return cluster.OutputPath(p, &n)
}
