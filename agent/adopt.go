package agent

import (
	"errors"
	"fmt"

	"github.com/berth-scheduler/berth/agent/login"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// errNoJob is what users without a job on the node see when they try to log in.
var errNoJob = errors.New("you have no running job on this node")

// Resident implements login.Host.
func (a *Agent) Resident(who login.Who) (job string, err error) {
	t, _ := a.resident(who)
	if t == nil {
		return "", errNoJob
	}
	return t.id.Job.String(), nil
}

// resident returns the user's most recently placed attempt on this node.
func (a *Agent) resident(who login.Who) (newest *task, as *nodev1.Assignment) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.tasks {
		own, _ := t.wants()
		mine := who.UID >= 0 && int64(own.GetUid()) == who.UID || who.UID < 0 && who.Name != "" && own.GetUser() == who.Name
		if own != nil && mine && t.points.live() && (newest == nil || t.token > newest.token) {
			newest, as = t, own
		}
	}
	return newest, as
}

// HasJob reports whether an attempt of the user is on this node, from before its first
// process starts until it is over.
func (a *Agent) HasJob(uid uint32) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.tasks {
		if own, _ := t.wants(); own != nil && own.GetUid() == uid && !t.points.past() {
			return true
		}
	}
	return false
}

// Adopt implements login.Host. What it moves into the job ends with the job.
func (a *Agent) Adopt(who login.Who, pid int) (job string, err error) {
	t, as := a.resident(who)
	if t == nil {
		return "", errNoJob
	}
	if pid <= 1 {
		return "", fmt.Errorf("process %d cannot be moved into a job", pid)
	}
	g := groupOf(a.runtimeFor(as), t.id)
	if g == nil {
		return "", errors.New("jobs on this node have no control groups, so a login could not be held to the job's limits")
	}
	t.points.visited.Store(true)
	if err := g.Adopt(pid); err != nil {
		if !t.points.live() {
			return "", errNoJob
		}
		return "", fmt.Errorf("job %s: %w", t.id.Job, err)
	}
	if !t.points.live() {
		t.endLogins() // the attempt ended meanwhile
		return "", errNoJob
	}
	return t.id.Job.String(), nil
}

// endLogins ends the login sessions of an attempt that is over; the runtime does not know
// them.
func (t *task) endLogins() {
	as, _ := t.wants()
	if !t.points.visited.Load() || as == nil {
		return
	}
	if g := groupOf(t.agent.runtimeFor(as), t.id); g != nil {
		if err := g.Kill(); err != nil {
			t.log.Error("cannot end what logged in to a job", "err", err)
		}
	}
}

// past reports whether the attempt is over.
func (m *milestones) past() bool {
	select {
	case <-m.over:
		return true
	default:
		return false
	}
}

// live reports whether the first process was started and has not ended.
func (m *milestones) live() bool {
	select {
	case <-m.runs:
		return !m.past()
	default:
		return false
	}
}
