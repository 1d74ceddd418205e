package accounts

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
)

// EnterNames sets the account and the quality of service that a user's job runs
// under, or refuses the job. If there are no accounts, or no QOS, the job keeps the
// name it gives, without effect. An administrator may charge any account.
func (d *rules) EnterNames(who cluster.Owner, admin bool, spec *cluster.Spec) *cluster.Error {
	if err := d.enterAccount(who, admin, spec); err != nil {
		return err
	}
	return d.enterQOS(spec)
}

// Limited reports whether there are quotas.
func (d *Books) Limited() bool { return d.limiter != nil }

// EnterLimits sets a job's time limit from a quota if it asks for none, or refuses
// the job. It is not a read: the limiter remembers each holder it is asked about.
func (d *Books) EnterLimits(who cluster.Owner, spec *cluster.Spec) *cluster.Error {
	if d.limiter == nil {
		return nil
	}
	if r := d.limiter.Enter(accounting.Who{Holder: accounting.Holder{Account: spec.Account, QOS: spec.QOS, UID: who.UID}, Name: who.Name}, spec); r.Code != "" {
		return cluster.Errorf(cluster.CodeInvalid, "%s", r)
	}
	return nil
}

func (d *rules) enterAccount(who cluster.Owner, admin bool, spec *cluster.Spec) *cluster.Error {
	if d.accounts.Len() == 0 {
		return nil
	}
	refuse := func(format string, args ...any) *cluster.Error {
		return cluster.Errorf(cluster.CodeInvalid, cluster.WordsNoAccount+": "+format, args...)
	}
	uid, name := who.UID, cmp.Or(who.Name, fmt.Sprint(who.UID))
	switch home := d.home[uid]; {
	case spec.Account == "" && home == "" && d.Policy().Require && !admin:
		if in := d.accountsOf(uid); len(in) > 0 {
			return refuse("none of the accounts of user %s is the default one, and this cluster asks for one; name it: %s", name, strings.Join(in, ", "))
		}
		return refuse("user %s is in no account, and this cluster asks for one; ask an administrator", name)
	case spec.Account == "":
		spec.Account = home
		return nil
	case d.accounts.Get(spec.Account) == nil:
		return refuse("account %q is not known; see: berth account list", spec.Account)
	case !admin && d.members.Get(accounting.Assoc{Account: spec.Account, UID: uid}) == nil:
		return refuse("user %s is not in account %s; see: berth account list", name, spec.Account)
	}
	return nil
}

// accountsOf returns the accounts that a user is in, by name.
func (d *rules) accountsOf(uid cluster.UID) (in []string) {
	for _, a := range d.members.Keys() {
		if a.UID == uid {
			in = append(in, a.Account)
		}
	}
	return in
}

func (d *rules) enterQOS(spec *cluster.Spec) *cluster.Error {
	if d.qos.Len() == 0 {
		return nil
	}
	allowed, usual := d.qosOf(spec.Account)
	if spec.QOS == "" {
		for name, q := range d.qos.Rows() { // at most one matches
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
	q := d.qos.Get(spec.QOS)
	switch {
	case q == nil:
		return cluster.Errorf(cluster.CodeInvalid, cluster.WordsNoQOS+": qos %q is not known; see: berth qos list", spec.QOS)
	case len(allowed) > 0 && !slices.Contains(allowed, spec.QOS):
		return cluster.Errorf(cluster.CodeInvalid, cluster.WordsNoQOS+": account %s allows only %v, not qos %s", spec.Account, allowed, spec.QOS)
	}
	// A preemptible job must have a way to be notified.
	if !spec.Checkpoint.Set() && d.preemptible(spec.QOS) {
		spec.Checkpoint = cluster.Checkpoint{Signal: "TERM", Grace: cluster.DefaultCheckpointGrace}
		if q.Grace > 0 {
			spec.Checkpoint.Grace = max(q.Grace, cluster.MinCheckpointGrace)
		}
	}
	return nil
}

// qosOf returns the QOS that an account allows, and that of its jobs that name
// none. Each comes from the nearest ancestor that sets it.
func (d *rules) qosOf(account string) (allowed []string, usual string) {
	for depth := 0; account != "" && depth <= accounting.MaxAccountDepth; depth++ {
		a := d.accounts.Get(account)
		if a == nil {
			break
		}
		if len(allowed) == 0 {
			allowed = a.QOS
		}
		usual = cmp.Or(usual, a.DefaultQOS)
		account = a.Parent
	}
	return allowed, usual
}

// preemptible reports whether jobs of another QOS may preempt jobs of this one.
func (d *rules) preemptible(qos string) bool {
	for _, q := range d.qos.Rows() {
		if slices.Contains(q.Preempts, qos) {
			return true
		}
	}
	return false
}

// Above returns an account and its ancestors, nearest first; none for "".
func (d *rules) Above(name string) (out []string) {
	for depth := 0; name != "" && depth <= accounting.MaxAccountDepth; depth++ {
		out = append(out, name)
		a := d.accounts.Get(name)
		if a == nil {
			break
		}
		name = a.Parent
	}
	return out
}

// Coordinates reports whether a user is a coordinator of an account or of one of
// its ancestors.
func (d *rules) Coordinates(uid cluster.UID, account string) bool {
	for depth := 0; account != "" && depth <= accounting.MaxAccountDepth; depth++ {
		if m := d.members.Get(accounting.Assoc{Account: account, UID: uid}); m != nil && m.Coordinator {
			return true
		}
		a := d.accounts.Get(account)
		if a == nil {
			return false
		}
		account = a.Parent
	}
	return false
}
