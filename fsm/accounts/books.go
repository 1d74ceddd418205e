// Package accounts is the part of the state machine for charging, priority and
// limits: accounts and their users, qualities of service, quotas, and what attempts
// cost.
package accounts

import (
	"cmp"
	"errors"
	"fmt"
	"maps"

	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/fsm/command"
	"github.com/berth-scheduler/berth/fsm/table"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// rules are the settings that administrators made for accounts.
type rules struct {
	accounts *table.Table[string, *accounting.Account]
	members  *table.Table[accounting.Assoc, *accounting.Member]
	qos      *table.Table[string, *accounting.QOS]
	quotas   *table.Table[accounting.Subject, *accounting.Quota]
	policy   *accounting.AccountPolicy // nil until one is set

	policyDigest *table.Digests[table.One]
	// home is each user's default account, derived from the members and never
	// stored.
	home map[cluster.UID]string
	// rev increases when accounts or their users change.
	rev uint64
}

// Books holds all state of accounts. Values in it are immutable.
type Books struct {
	rules
	spent *table.Table[accounting.Holder, *accounting.Spent]
	rest  Rest

	// The rest is derived from the above and from the jobs, and never stored.
	limiter *accounting.Limiter // nil if there are no quotas
	// jobsOf counts the waiting and running jobs of each user.
	jobsOf map[cluster.UID]int
	used   map[Budget]cluster.GPUTime
	usedAt uint64 // index as of which used is valid, 0 for none
}

// Rest gives the books access to the rest of the state.
type Rest struct {
	// At returns the entry that is being applied, or was last.
	At func() command.Entry
	// Unended returns the jobs that wait or run, Live those with an attempt.
	Unended, Live func() []*cluster.Job
}

// New returns empty books.
func New(h *table.Hash, rest Rest) *Books {
	d := &Books{rest: rest, jobsOf: map[cluster.UID]int{}}
	d.rules = rules{
		accounts: table.New(h, ofRulings[string, *accounting.Account]("account/", func(name string) string { return name }, cmp.Compare[string])),
		members:  table.New(h, ofRulings[accounting.Assoc, *accounting.Member]("member/", func(a accounting.Assoc) string { return fmt.Sprintf("%s/%d", a.Account, a.UID) }, byAccount)),
		qos:      table.New(h, ofRulings[string, *accounting.QOS]("qos/", func(name string) string { return name }, cmp.Compare[string])),
		quotas:   table.New(h, ofRulings[accounting.Subject, *accounting.Quota]("quota/", accounting.Subject.String, bySubject)),
		home:     map[cluster.UID]string{},
	}
	d.spent = table.New(h, table.Of[accounting.Holder, *accounting.Spent]{
		Kind: table.Spent, Key: func(h accounting.Holder) []byte { return []byte(holderKey(h)) },
		Compare: func(a, b accounting.Holder) int { return cmp.Compare(holderKey(a), holderKey(b)) },
		Record:  func(_ accounting.Holder, x *accounting.Spent) proto.Message { return conv.SpentToLog(x) },
	})
	d.policyDigest = table.NewDigests(h, table.Standing, func(table.One) []byte { return []byte("policy/") }, func(table.One) proto.Message {
		if d.policy == nil {
			return nil
		}
		return conv.RulingToLog(d.policy)
	})
	return d
}

// ofRulings describes one kind of rules within the table of all: the keys of all
// begin with its name.
func ofRulings[K comparable, V conv.Ruling](kind string, key func(K) string, compare func(a, b K) int) table.Of[K, V] {
	return table.Of[K, V]{
		Kind: table.Standing, Key: func(k K) []byte { return []byte(kind + key(k)) },
		Compare: compare,
		Record:  func(_ K, v V) proto.Message { return conv.RulingToLog(v) },
	}
}

// byAccount orders users of accounts by number, not by text.
func byAccount(a, b accounting.Assoc) int {
	return cmp.Or(cmp.Compare(a.Account, b.Account), cmp.Compare(a.UID, b.UID))
}

func bySubject(a, b accounting.Subject) int { return cmp.Compare(a.String(), b.String()) }

// holderKey returns the stored key of what a holder was charged; names hold no
// slash.
func holderKey(h accounting.Holder) string { return fmt.Sprintf("%s/%s/%d", h.Account, h.QOS, h.UID) }

// Apply applies a command about accounts.
func (d *Books) Apply(at command.Entry, cmd *logv1.Command) command.Result {
	if c := cmd.GetSetStanding(); c != nil {
		return d.set(at, c)
	}
	panic(fmt.Sprintf("accounts: %T is not for this machine", cmd.Kind))
}

// View returns a copy for writing a snapshot; it does not change.
func (d *Books) View() *Books {
	r := rules{accounts: d.accounts.View(), members: d.members.View(), qos: d.qos.View(), quotas: d.quotas.View(), policy: d.policy}
	return &Books{rules: r, spent: d.spent.View()}
}

// Each sends all records.
func (d *Books) Each(w *table.Writer) {
	put := func(r conv.Ruling) {
		w.Send(&logv1.Record{Kind: &logv1.Record_Standing{Standing: conv.RulingToLog(r)}})
	}
	if d.policy != nil {
		put(d.policy)
	}
	for _, q := range d.qos.List() {
		put(q)
	}
	for _, a := range d.accounts.List() {
		put(a)
	}
	for _, m := range d.members.List() {
		put(m)
	}
	for _, q := range d.quotas.List() {
		put(q)
	}
	for _, x := range d.spent.List() {
		w.Send(&logv1.Record{Kind: &logv1.Record_Spent{Spent: conv.SpentToLog(x)}})
	}
}

// Load restores a record that Each sent.
func (d *Books) Load(r *logv1.Record) error {
	switch m := r.Kind.(type) {
	case *logv1.Record_Standing:
		rule, err := conv.RulingFromLog(m.Standing)
		if err != nil {
			return err
		}
		if d.Find(rule) != nil {
			return fmt.Errorf("%s appears twice", wordsOf(rule))
		}
		d.putRuling(rule)
	case *logv1.Record_Spent:
		x, err := conv.SpentFromLog(m.Spent)
		if err != nil {
			return err
		}
		if d.spent.Has(x.Holder) {
			return errors.New("use of a holder appears twice")
		}
		d.putSpent(x)
	}
	return nil
}

// Policy returns the settings common to all accounts.
func (d *rules) Policy() *accounting.AccountPolicy {
	if d.policy != nil {
		return d.policy
	}
	p := accounting.DefaultAccountPolicy()
	return &p
}

// JobsOf returns how many jobs of a user wait or run.
func (d *Books) JobsOf(uid cluster.UID) int { return d.jobsOf[uid] }

// HomeOf returns the default account of a user, "" for none.
func (d *rules) HomeOf(uid cluster.UID) string { return d.home[uid] }

// Revision returns a number that changes whenever accounts or their users do.
func (d *rules) Revision() uint64 { return d.rev }

// Any reports whether there are accounts, and qualities of service.
func (d *rules) Any() (accounts, qos bool) { return d.accounts.Len() > 0, d.qos.Len() > 0 }

// EachSpent calls fn with each holder's decayed use at now, without running
// attempts.
func (d *Books) EachSpent(now cluster.Time, fn func(accounting.Holder, cluster.GPUTime)) {
	p := d.Policy()
	for h, x := range d.spent.Rows() {
		fn(h, x.Left(now, p))
	}
}

// Standing is a copy of the accounts and of their use.
type Standing struct {
	Policy   accounting.AccountPolicy
	Accounts map[string]*accounting.Account
	Members  map[accounting.Assoc]*accounting.Member
	QOS      map[string]*accounting.QOS
	Quotas   map[accounting.Subject]*accounting.Quota
	Spent    map[accounting.Holder]*accounting.Spent
	// Live are the jobs with an attempt, Waiting counts the others by holder.
	Live []*cluster.Job
	Now  cluster.Time
	// Limits is a copy, nil without quotas.
	Limits *accounting.Limiter
}

// Standing returns a copy of the accounts as of now.
func (d *Books) Standing(now cluster.Time) *Standing {
	return &Standing{
		Policy: *d.Policy(), Accounts: maps.Clone(d.accounts.Rows()), Members: maps.Clone(d.members.Rows()), QOS: maps.Clone(d.qos.Rows()),
		Quotas: maps.Clone(d.quotas.Rows()), Spent: maps.Clone(d.spent.Rows()), Now: now, Limits: d.Limits(now), Live: d.rest.Live(),
	}
}
