package accounts

import (
	"cmp"
	"maps"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/fsm"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv"
	"github.com/berth-scheduler/berth/scheduler/fair"
)

// standingView builds the answer.
type standingView struct {
	d    *fsm.Standing
	req  *apiv1.ListStandingRequest
	resp *apiv1.ListStandingResponse
}

// below reports whether an account was requested, or one above it.
func (v *standingView) below(account string) bool {
	if len(v.req.Accounts) == 0 {
		return true
	}
	for depth := 0; account != "" && depth <= accounting.MaxAccountDepth; depth++ {
		if slices.Contains(v.req.Accounts, account) {
			return true
		}
		a := v.d.Accounts[account]
		if a == nil {
			break
		}
		account = a.Parent
	}
	return false
}

func (v *standingView) ofUser(uid cluster.UID) bool {
	return len(v.req.Uids) == 0 || slices.Contains(v.req.Uids, uint32(uid))
}

func (v *standingView) rules() {
	for _, a := range v.tree("") {
		if v.below(a.Name) {
			v.resp.Accounts = append(v.resp.Accounts, conv.RulingToAPI(a).GetAccount())
		}
	}
	for _, m := range sorted(v.d.Members, func(a, b accounting.Assoc) int {
		return cmp.Or(cmp.Compare(a.Account, b.Account), cmp.Compare(a.UID, b.UID))
	}) {
		if v.below(m.Account) && v.ofUser(m.UID) {
			v.resp.Members = append(v.resp.Members, conv.RulingToAPI(m).GetMember())
		}
	}
	for _, q := range sorted(v.d.QOS, cmp.Compare[string]) {
		v.resp.Qos = append(v.resp.Qos, conv.RulingToAPI(q).GetQos())
	}
	for _, q := range sorted(v.d.Quotas, func(a, b accounting.Subject) int { return cmp.Compare(a.String(), b.String()) }) {
		if len(v.req.Accounts) > 0 && !slices.Contains(v.req.Accounts, q.Subject.Account) || q.Subject.User && !v.ofUser(q.Subject.UID) {
			continue
		}
		m := conv.RulingToAPI(q).GetQuota()
		if !q.Subject.Each && v.d.Limits != nil {
			t := v.d.Limits.Tally(q.Subject)
			m.GpuMilli, m.Running, m.Jobs = t.GPUMilli, t.Running, t.Jobs
			m.GpuTimeUs = int64(v.d.Limits.Spent(q.Subject, q.Limits.Period))
		}
		v.resp.Quotas = append(v.resp.Quotas, m)
	}
}

func sorted[K comparable, V any](m map[K]V, by func(a, b K) int) []V {
	out := make([]V, 0, len(m))
	for _, k := range slices.SortedFunc(maps.Keys(m), by) {
		out = append(out, m[k])
	}
	return out
}

// tree returns the accounts below one, each before its children.
func (v *standingView) tree(parent string) []*accounting.Account {
	children := map[string][]*accounting.Account{}
	for _, a := range sorted(v.d.Accounts, cmp.Compare[string]) {
		children[a.Parent] = append(children[a.Parent], a)
	}
	var out []*accounting.Account
	var walk func(string)
	walk = func(parent string) {
		for _, a := range children[parent] {
			out = append(out, a)
			walk(a.Name)
		}
	}
	walk(parent)
	return out
}

// use adds usage, and returns the order of fair shares.
func (v *standingView) use() *accounting.Fair {
	d := v.d
	by := map[accounting.Assoc]*apiv1.Use{}
	of := func(who accounting.Assoc) *apiv1.Use {
		if by[who] == nil {
			by[who] = &apiv1.Use{}
		}
		return by[who]
	}
	tree := fair.New(d.Accounts, d.Members)
	count := func(h accounting.Assoc, gpu, core int64, left cluster.GPUTime) {
		u := of(h)
		u.GpuUs += gpu
		u.CoreUs += core
		u.LeftUs += int64(left)
		tree.Add(h, left)
	}
	for h, x := range d.Spent {
		count(accounting.Assoc{Account: h.Account, UID: h.UID}, int64(x.GPU), x.Core, x.Left(d.Now, &d.Policy))
	}
	for _, j := range d.Live {
		a, h := j.Live(), accounting.Assoc{Account: j.Spec.Account, UID: j.Owner.UID}
		if a == nil {
			continue
		}
		c := a.Charge(d.Now)
		count(h, c.GPU.Microseconds(), c.Core.Microseconds(), accounting.LeftOf(a, j.Estimates, d.Now, &d.Policy))
		milli, _ := a.Rate()
		of(h).GpuMilli += milli
		of(h).Running++
	}
	fair := tree.Order()
	sums := map[string]*apiv1.Use{}
	for who, u := range by {
		for name := who.Account; name != "" && d.Accounts[name] != nil; name = d.Accounts[name].Parent {
			if sums[name] == nil {
				sums[name] = &apiv1.Use{}
			}
			s := sums[name]
			s.GpuUs, s.CoreUs, s.LeftUs = s.GpuUs+u.GpuUs, s.CoreUs+u.CoreUs, s.LeftUs+u.LeftUs
			s.GpuMilli, s.Running = s.GpuMilli+u.GpuMilli, s.Running+u.Running
		}
	}
	v.parts(by, sums, fair)
	return fair
}

// parts sets each account's and user's part of the shares and usage of its
// siblings.
func (v *standingView) parts(by map[accounting.Assoc]*apiv1.Use, sums map[string]*apiv1.Use, fair *accounting.Fair) {
	d := v.d
	shares, used := map[string]int64{}, map[string]int64{} // of all children of an account
	userShares, userUsed := map[string]int64{}, map[string]int64{}
	for name, a := range d.Accounts {
		shares[a.Parent] += a.Shares
		used[a.Parent] += sums[name].GetLeftUs()
	}
	for who, m := range d.Members {
		userShares[who.Account] += m.Shares
		userUsed[who.Account] += by[who].GetLeftUs()
	}
	part := func(n, of int64) float64 {
		if of <= 0 {
			return 0
		}
		return float64(n) / float64(of)
	}
	for _, m := range v.resp.Accounts {
		m.Use = cmp.Or(sums[m.Name], &apiv1.Use{})
		m.Use.SharesPart, m.Use.UsePart = part(m.Shares, shares[m.Parent]+userShares[m.Parent]), part(m.Use.LeftUs, used[m.Parent]+userUsed[m.Parent])
	}
	for _, m := range v.resp.Members {
		who := accounting.Assoc{Account: m.Account, UID: cluster.UID(m.Uid)}
		m.Use = cmp.Or(by[who], &apiv1.Use{})
		m.Use.SharesPart, m.Use.UsePart = part(m.Shares, shares[m.Account]+userShares[m.Account]), part(m.Use.LeftUs, used[m.Account]+userUsed[m.Account])
		m.Use.Rank, m.Use.Of = uint32(fair.Place(who)), uint32(fair.Of)
	}
}
