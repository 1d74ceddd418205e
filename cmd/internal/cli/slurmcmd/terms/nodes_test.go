package terms

import (
	"errors"
	"os/user"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// TestWhoDrained: sinfo -R says who drained a node last and when, and nothing of
// what befell its cards or was taken back.
func TestWhoDrained(t *testing.T) {
	now := time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC)
	uid, other := uint32(4_000_000), uint32(4_000_001) // nobody has these
	event := func(hour int, kind, gpu string, by *uint32) *apiv1.NodeEvent {
		return &apiv1.NodeEvent{At: timestamppb.New(now.Add(time.Duration(hour) * time.Hour)), Kind: kind, Gpu: gpu, ByUid: by}
	}
	n := &apiv1.Node{Id: "n1", State: "ready", Drain: true, DrainReason: "ECC", History: []*apiv1.NodeEvent{
		event(-9, "drained", "", &other), event(-8, "resumed", "", &other), event(-5, "drained", "", &uid), event(-4, "lost", "", nil), event(-3, "drained", "GPU-1", &other),
	}}
	v := onlooker(now)
	s := Node(v, n)
	if s.User != "4000000" || s.UserID != uid || !s.ReasonAt.Equal(now.Add(-5*time.Hour)) {
		t.Errorf("drained by %s (%d) at %s", s.User, s.UserID, s.ReasonAt)
	}
	n.History = append(n.History, event(-2, "resumed", "", &uid))
	if s := Node(v, n); s.User != "root" || !s.ReasonAt.IsZero() {
		t.Errorf("resumed, but drained by %s at %s", s.User, s.ReasonAt)
	}
}

// TestPoweredDownInSlurmsTerms: a node that is powered down is not one that does not
// answer, and one that did not come back is.
func TestPoweredDownInSlurmsTerms(t *testing.T) {
	for state, want := range map[string]struct {
		state, reason string
		silent        bool
	}{
		"powered-down":  {"IDLE+POWERED_DOWN", "moves", false},
		"powering-down": {"IDLE+POWERING_DOWN", "moves", false},
		"powering-up":   {"IDLE+POWERING_UP", "moves", false},
		"down":          {"DOWN", "moves", true},
		"ready":         {"IDLE", "", false},
	} {
		s := Node(onlooker(time.Now()), &apiv1.Node{Id: "n1", State: state, PowerReason: "moves", CpuMilli: 8000})
		if s.State != want.state || s.Silent != want.silent || s.Reason != want.reason {
			t.Errorf("%s: %s, silent %t, %q", state, s.State, s.Silent, s.Reason)
		}
	}
}

// onlooker has users 0, root, and 1001, ann of group 7, lab; whatever this
// machine has.
func onlooker(now time.Time) *Viewer {
	users := map[string]*user.User{"0": {Uid: "0", Gid: "0", Username: "root"}, "1001": {Uid: "1001", Gid: "7", Username: "ann"}}
	groups := map[string]*user.Group{"0": {Gid: "0", Name: "root"}, "7": {Gid: "7", Name: "lab"}}
	return ViewFrom(&console.Env{Getenv: func(string) string { return "" }, Now: func() time.Time { return now }, Accounts: console.Accounts{
		UserID: func(uid string) (*user.User, error) {
			if u, ok := users[uid]; ok {
				return u, nil
			}
			return nil, errors.New("no such user")
		},
		GroupID: func(gid string) (*user.Group, error) {
			if g, ok := groups[gid]; ok {
				return g, nil
			}
			return nil, errors.New("no such group")
		},
	}})
}

// TestAccountsOfTheOnlooker: users and groups are called as they are where
// somebody looks; who is not known there goes by number.
func TestAccountsOfTheOnlooker(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		uid, gid    uint32
		user, group string
	}{{0, 0, "root", "root"}, {1001, 7, "ann", "lab"}, {1002, 1002, "1002", "1002"}} {
		v := onlooker(time.Now())
		for range 2 { // asked and remembered
			if gid, group := v.group(c.uid); v.user(c.uid) != c.user || gid != c.gid || group != c.group {
				t.Errorf("uid %d is %s of %s (%d), want %s of %s (%d)", c.uid, v.user(c.uid), group, gid, c.user, c.group, c.gid)
			}
		}
		job := Job(v, &apiv1.Job{Id: 1, Uid: c.uid, Spec: &apiv1.JobSpec{}})
		if job.GID != c.gid || job.Group != c.group {
			t.Errorf("a job of uid %d is of %s (%d), want %s (%d)", c.uid, job.Group, job.GID, c.group, c.gid)
		}
	}
}
