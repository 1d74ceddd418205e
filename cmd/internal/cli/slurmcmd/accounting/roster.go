package accounting

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/slurmcmd/option"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"
	"github.com/berth-scheduler/berth/cmd/internal/slurm/text"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// roster says which users are in which account, for sacctmgr.
type roster struct {
	st *apiv1.ListStandingResponse
	o  *mgrOptions
}

// nameOf returns a user's name, or the number if the name is unknown.
func nameOf(m *apiv1.AccountUser) string {
	return cmp.Or(console.Escape(m.GetName()), strconv.FormatUint(uint64(m.GetUid()), 10))
}

// members returns those of an account, or all, by name.
func (t *roster) members(account string) []*apiv1.AccountUser {
	list := slices.DeleteFunc(slices.Clone(t.st.GetMembers()), func(m *apiv1.AccountUser) bool { return account != "" && m.GetAccount() != account })
	slices.SortStableFunc(list, func(a, b *apiv1.AccountUser) int {
		return cmp.Or(cmp.Compare(nameOf(a), nameOf(b)), cmp.Compare(a.GetAccount(), b.GetAccount()))
	})
	return list
}

// users returns the users in accounts, each once, or with associations once
// per account.
func (t *roster) users() (rows []slurm.Managed) {
	seen := map[string]bool{}
	for _, m := range t.members("") {
		name := nameOf(m)
		if !t.o.picks("user", name) || !t.o.picks("account", m.GetAccount()) || seen[name] && !t.o.assoc {
			continue
		}
		seen[name] = true
		row := slurm.Managed{"user": name, "name": name, "defacct": t.usual(m.GetUid()), "admin": "None"}
		if m.GetUid() == 0 {
			row["admin"] = "Administrator"
		}
		var leads []string
		for _, x := range t.members("") {
			if x.GetUid() == m.GetUid() && x.GetCoordinator() {
				leads = append(leads, console.Escape(x.GetAccount()))
			}
		}
		row["coordaccounts"] = strings.Join(leads, ",")
		if t.o.assoc {
			t.member(row, m)
		}
		rows = append(rows, row)
	}
	return rows
}

// usual returns a user's default account.
func (t *roster) usual(uid uint32) string {
	first := ""
	for _, m := range t.st.GetMembers() {
		if m.GetUid() == uid {
			if m.GetDefault() {
				return console.Escape(m.GetAccount())
			}
			first = cmp.Or(first, console.Escape(m.GetAccount()))
		}
	}
	return first
}

// accounts returns all accounts, with associations also once per user.
func (t *roster) accounts() (rows []slurm.Managed) {
	for _, a := range t.sorted("") {
		if !t.o.picks("account", a.GetName()) {
			continue
		}
		row := t.account(a)
		row["descr"], row["org"] = row["account"], cmp.Or(row["parname"], slurm.Root)
		if !t.o.assoc {
			rows = append(rows, row)
			continue
		}
		if len(t.o.where["user"]) == 0 {
			rows = append(rows, row)
		}
		rows = append(rows, t.within(a, row["descr"], row["org"])...)
	}
	return rows
}

// within returns the rows of an account's users.
func (t *roster) within(a *apiv1.Account, descr, org string) (rows []slurm.Managed) {
	for _, m := range t.members(a.GetName()) {
		if t.o.picks("user", nameOf(m)) {
			row := slurm.Managed{"user": nameOf(m), "descr": descr, "org": org}
			t.member(row, m)
			rows = append(rows, row)
		}
	}
	return rows
}

// associations returns the accounts as a tree, each followed by its users.
func (t *roster) associations() (rows []slurm.Managed) {
	if t.o.picks("account", slurm.Root) && len(t.o.where["user"]) == 0 {
		rows = append(rows, slurm.Managed{"cluster": option.ClusterName, "account": slurm.Root, "share": "1", "qos": t.allQOS()})
	}
	for _, a := range t.sorted("") {
		if !t.o.picks("account", a.GetName()) {
			continue
		}
		if len(t.o.where["user"]) == 0 {
			rows = append(rows, t.account(a))
		}
		rows = append(rows, t.within(a, "", "")...)
	}
	return rows
}

// sorted returns the accounts below one, in the order of the tree.
func (t *roster) sorted(parent string) (out []*apiv1.Account) {
	below := slices.DeleteFunc(slices.Clone(t.st.GetAccounts()), func(a *apiv1.Account) bool { return a.GetParent() != parent })
	slices.SortFunc(below, func(a, b *apiv1.Account) int { return cmp.Compare(a.GetName(), b.GetName()) })
	for _, a := range below {
		out = append(append(out, a), t.sorted(a.GetName())...)
	}
	return out
}

func (t *roster) account(a *apiv1.Account) slurm.Managed {
	row := slurm.Managed{
		"cluster": option.ClusterName, "account": console.Escape(a.GetName()), "name": console.Escape(a.GetName()), "parname": cmp.Or(console.Escape(a.GetParent()), slurm.Root),
		"share": strconv.FormatInt(a.GetShares(), 10), "qos": t.qosOf(a), "defqos": console.Escape(a.GetDefaultQos()),
	}
	for _, q := range t.st.GetQuotas() {
		switch {
		case q.GetAccount() != a.GetName() || q.GetQos() != "" || q.GetUser():
		case q.GetEach():
			ownLimits(row, q.GetLimits())
		default:
			groupLimits(row, q.GetLimits())
		}
	}
	return row
}

// member adds the association of a user.
func (t *roster) member(row slurm.Managed, m *apiv1.AccountUser) {
	row["cluster"], row["account"], row["share"] = option.ClusterName, console.Escape(m.GetAccount()), strconv.FormatInt(m.GetShares(), 10)
	for _, a := range t.st.GetAccounts() {
		if a.GetName() == m.GetAccount() {
			row["qos"], row["defqos"] = t.qosOf(a), console.Escape(a.GetDefaultQos())
		}
	}
	for _, own := range []bool{false, true} { // a user's own limits replace those of each user
		for _, q := range t.st.GetQuotas() {
			mine := q.GetUser() && q.GetUid() == m.GetUid()
			if q.GetQos() == "" && (q.GetAccount() == m.GetAccount() || q.GetAccount() == "") && (own && mine || !own && q.GetEach()) {
				ownLimits(row, q.GetLimits())
			}
		}
	}
}

// qosOf returns the qualities of service of an account; one that names none has all.
func (t *roster) qosOf(a *apiv1.Account) string {
	if len(a.GetQos()) == 0 {
		return t.allQOS()
	}
	return console.Escape(strings.Join(a.GetQos(), ","))
}

func (t *roster) allQOS() string {
	names := []string{}
	for _, q := range t.st.GetQos() {
		names = append(names, console.Escape(q.GetName()))
	}
	return strings.Join(names, ",")
}

func (t *roster) qualities() (rows []slurm.Managed) {
	for _, q := range t.st.GetQos() {
		if !t.o.picks("qos", q.GetName()) {
			continue
		}
		row := slurm.Managed{
			"name": console.Escape(q.GetName()), "priority": strconv.FormatInt(q.GetPriority(), 10), "gracetime": text.Clock(q.GetGrace().AsDuration()),
			"preempt": console.Escape(strings.Join(q.GetPreempts(), ",")), "preemptmode": "requeue", "usagefactor": "1.000000",
		}
		if q.GetCancel() {
			row["preemptmode"] = "cancel"
		}
		for _, x := range t.st.GetQuotas() {
			switch {
			case x.GetQos() != q.GetName() || x.GetUser() || x.GetAccount() != "":
			case x.GetEach():
				eachLimits(row, x.GetLimits())
			default:
				groupLimits(row, x.GetLimits())
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// groupLimits sets the limits of all jobs together.
func groupLimits(row slurm.Managed, l *apiv1.Limits) {
	if us := l.GetGpuTimeUs(); us > 0 {
		row["grptresmins"] = "gres/gpu=" + strconv.FormatInt(us/int64(time.Minute/time.Microsecond), 10)
	}
	limits(row, l, "grpjobs", "grpsubmit", "grptres")
}

// ownLimits sets the limits of a user in an account.
func ownLimits(row slurm.Managed, l *apiv1.Limits) { limits(row, l, "maxjobs", "maxsubmit", "grptres") }

// eachLimits sets the limits of each user of a quality of service.
func eachLimits(row slurm.Managed, l *apiv1.Limits) {
	limits(row, l, "maxjobspu", "maxsubmitpu", "maxtrespu")
}

// limits sets those of running jobs, of jobs and of GPUs under the given
// names of fields, and those of one job.
func limits(row slurm.Managed, l *apiv1.Limits, running, jobs, gpus string) {
	fill(row, running, l.GetRunning())
	fill(row, jobs, l.GetJobs())
	if n := l.GetGpuMilli(); n > 0 {
		row[gpus] = "gres/gpu=" + thousandths(n)
	}
	if d := l.GetMaxTime().AsDuration(); d > 0 {
		row["maxwall"] = text.Clock(d)
	}
	if n := l.GetMaxGpus(); n > 0 {
		row["maxtres"] = "gres/gpu=" + strconv.FormatInt(n, 10)
	}
}

func fill(row slurm.Managed, key string, n int64) {
	if n > 0 {
		row[key] = strconv.FormatInt(n, 10)
	}
}

// thousandths formats them as a number: 2, or 0.5.
func thousandths(n int64) string { return strconv.FormatFloat(float64(n)/1000, 'f', -1, 64) }
