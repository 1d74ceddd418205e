package fsm

import (
	"slices"

	"github.com/berth-scheduler/berth/cluster"
)

// UserJobs counts the jobs of a user that wait or run.
func (f *FSM) UserJobs(uid cluster.UID) int {
	return read(f, func(s *State) int { return s.standing.jobsOf[uid] })
}

// StandingRevision changes whenever accounts or their users do.
func (f *FSM) StandingRevision() uint64 {
	return read(f, func(s *State) uint64 { return s.standing.rev })
}

// HasAccounts tells whether there are accounts, and qualities of service.
func (f *FSM) HasAccounts() (accounts, qos bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return len(f.st.standing.accounts) > 0, len(f.st.standing.qos) > 0
}

// AccountsFrom is an account with those above it, nearest first; none for "".
func (f *FSM) AccountsFrom(name string) (out []string) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for depth := 0; name != "" && depth <= cluster.MaxAccountDepth; depth++ {
		out = append(out, name)
		a := f.st.standing.accounts[name]
		if a == nil {
			break
		}
		name = a.Parent
	}
	return out
}

// AccountPolicy is what holds for all accounts.
func (f *FSM) AccountPolicy() cluster.AccountPolicy {
	return read(f, func(s *State) cluster.AccountPolicy { return *s.standing.policyOf() })
}

// EnterStanding gives the job of a user the account and the quality of service
// that it runs under, and the time limit that a quota gives to who asks for
// none, or refuses it. Where there are no accounts, or no QOS, what the job names
// stays with it and means nothing. An administrator may charge any account.
func (f *FSM) EnterStanding(uid cluster.UID, admin bool, spec *cluster.Spec) *cluster.Error {
	if limited, err := f.enterNames(uid, admin, spec); err != nil || !limited {
		return err
	}
	f.mu.Lock() // a limiter remembers whom it was asked for
	defer f.mu.Unlock()
	d := &f.st.standing
	if d.limiter == nil {
		return nil
	}
	if r := d.limiter.Enter(cluster.Holder{Account: spec.Account, QOS: spec.QOS, UID: uid}, spec); r.Code != "" {
		return cluster.Errorf(cluster.CodeInvalid, "%s", r)
	}
	return nil
}

// enterNames does so but for quotas, and tells whether there are any.
func (f *FSM) enterNames(uid cluster.UID, admin bool, spec *cluster.Spec) (limited bool, err *cluster.Error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	d := &f.st.standing
	if err := d.enterAccount(uid, admin, spec); err != nil {
		return false, err
	}
	return d.limiter != nil, d.enterQOS(spec)
}

func (d *standing) enterAccount(uid cluster.UID, admin bool, spec *cluster.Spec) *cluster.Error {
	if len(d.accounts) == 0 {
		return nil
	}
	refuse := func(format string, args ...any) *cluster.Error {
		return cluster.Errorf(cluster.CodeInvalid, cluster.WordsNoAccount+": "+format, args...)
	}
	switch home := d.home[uid]; {
	case spec.Account == "" && home == "" && d.policyOf().Require && !admin:
		return refuse("user %d is in no account, and this cluster asks for one; ask an administrator", uid)
	case spec.Account == "":
		spec.Account = home
		return nil
	case d.accounts[spec.Account] == nil:
		return refuse("account %q is not known; see: berth account list", spec.Account)
	case !admin && d.members[cluster.Assoc{Account: spec.Account, UID: uid}] == nil:
		return refuse("user %d is not in account %s; see: berth account list", uid, spec.Account)
	}
	return nil
}

func (d *standing) enterQOS(spec *cluster.Spec) *cluster.Error {
	if len(d.qos) == 0 {
		return nil
	}
	allowed, usual := d.qosOf(spec.Account)
	if spec.QOS == "" {
		for name, q := range d.qos { // at most one
			if usual == "" && q.Default && (len(allowed) == 0 || slices.Contains(allowed, name)) {
				spec.QOS = name
			}
		}
		if usual != "" {
			spec.QOS = usual
		}
		if spec.QOS == "" {
			return nil
		}
	}
	q := d.qos[spec.QOS]
	switch {
	case q == nil:
		return cluster.Errorf(cluster.CodeInvalid, cluster.WordsNoQOS+": qos %q is not known; see: berth qos list", spec.QOS)
	case len(allowed) > 0 && !slices.Contains(allowed, spec.QOS):
		return cluster.Errorf(cluster.CodeInvalid, cluster.WordsNoQOS+": account %s allows %v and not qos %s", spec.Account, allowed, spec.QOS)
	}
	// Who may be ended for others needs a way to be told.
	if !spec.Checkpoint.Set() && d.preemptible(spec.QOS) {
		spec.Checkpoint = cluster.Checkpoint{Signal: "TERM", Grace: cluster.DefaultCheckpointGrace}
		if q.Grace > 0 {
			spec.Checkpoint.Grace = max(q.Grace, cluster.MinCheckpointGrace)
		}
	}
	return nil
}

// qosOf is what an account allows, and the QOS of its jobs that name none: each
// is the nearest one's above it that says so.
func (d *standing) qosOf(account string) (allowed []string, usual string) {
	for depth := 0; account != "" && depth <= cluster.MaxAccountDepth; depth++ {
		a := d.accounts[account]
		if a == nil {
			break
		}
		if len(allowed) == 0 {
			allowed = a.QOS
		}
		if usual == "" {
			usual = a.DefaultQOS
		}
		account = a.Parent
	}
	return allowed, usual
}

// preemptible tells whether jobs of a QOS make room for those of another.
func (d *standing) preemptible(qos string) bool {
	for _, q := range d.qos {
		if slices.Contains(q.Preempts, qos) {
			return true
		}
	}
	return false
}

// EachUse calls fn with what of each user's use has not decayed at a time, when
// that is later than the last entry, what runs included; one user may come several times.
func (f *FSM) EachUse(now cluster.Time, fn func(cluster.Assoc, cluster.GPUTime)) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	s, p := f.st, f.st.standing.policyOf()
	now = max(now, s.now)
	for h, x := range s.standing.spent {
		fn(cluster.Assoc{Account: h.Account, UID: h.UID}, x.Left(now, p))
	}
	for _, j := range s.inStates(cluster.JobStarting, cluster.JobRunning, cluster.JobCompleting, cluster.JobUnreachable) {
		if a := j.Live(); a != nil {
			fn(cluster.Assoc{Account: j.Spec.Account, UID: j.Owner.UID}, cluster.LeftOf(a, now, p))
		}
	}
}

// Coordinates tells whether a user is a coordinator of an account, or of one
// above it.
func (f *FSM) Coordinates(uid cluster.UID, account string) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	d := &f.st.standing
	for depth := 0; account != "" && depth <= cluster.MaxAccountDepth; depth++ {
		if m := d.members[cluster.Assoc{Account: account, UID: uid}]; m != nil && m.Coordinator {
			return true
		}
		a := d.accounts[account]
		if a == nil {
			return false
		}
		account = a.Parent
	}
	return false
}
