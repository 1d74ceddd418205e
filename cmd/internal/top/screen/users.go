package screen

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// userRow is a user in one account, with running and waiting jobs and the rank by fair
// share.
type userRow struct {
	user, account          string
	uid                    uint32
	running, waiting, gpus int
	memMiB                 int64
	use                    *apiv1.Use
}

var userSorts = []string{"gpus", "user", "account", "waiting", "rank"}

func (s *Screen) makeUserRows() []*userRow {
	type who struct {
		uid     uint32
		account string
	}
	at := map[who]*userRow{}
	row := func(uid uint32, account, user string) *userRow {
		r := at[who{uid, account}]
		if r == nil {
			r = &userRow{uid: uid, account: clean(account), user: strconv.FormatUint(uint64(uid), 10)}
			at[who{uid, account}] = r
		}
		if user != "" {
			r.user = clean(user)
		}
		return r
	}
	for _, e := range s.store.byID {
		if e.rank == rankEnded {
			continue
		}
		r := row(e.job.GetUid(), e.job.GetAccount(), e.job.GetUser())
		if e.rank != rankRunning {
			r.waiting += e.count()
			continue
		}
		nodes := int(max(1, e.job.GetNodesWanted()))
		r.running++
		r.gpus += len(e.job.GetGpus()) * nodes
		for _, g := range e.job.GetGpus() {
			r.memMiB += g.GetShare().GetMemMib() * int64(nodes)
		}
	}
	for _, m := range s.standing.GetMembers() {
		row(m.GetUid(), m.GetAccount(), m.GetName()).use = m.GetUse()
	}
	low := strings.ToLower(s.filters[TabUsers])
	var rows []*userRow
	for _, r := range at {
		mine := r.user == s.cfg.Me || strconv.FormatUint(uint64(r.uid), 10) == s.cfg.Me
		if (mine || !s.mine) && (low == "" || strings.Contains(strings.ToLower(r.user+" "+r.account), low)) {
			rows = append(rows, r)
		}
	}
	slices.SortFunc(rows, s.userOrder())
	return rows
}

func (s *Screen) userOrder() func(a, b *userRow) int {
	by := s.sorts[TabUsers]
	return func(a, b *userRow) int {
		n := 0
		switch userSorts[by.by] {
		case "account":
			n = strings.Compare(a.account, b.account)
		case "waiting":
			n = b.waiting - a.waiting
		case "rank":
			n = cmp.Compare(a.use.GetRank()-1, b.use.GetRank()-1) // users without a rank are last
		case "gpus":
			n = cmp.Or(b.gpus-a.gpus, b.running-a.running)
		}
		n = cmp.Or(n, strings.Compare(a.user, b.user), strings.Compare(a.account, b.account))
		if by.reverse {
			return -n
		}
		return n
	}
}

func (s drawing) userTable() table {
	return table{
		cols: []column{
			{head: "USER", width: 10, grow: true}, {head: "ACCOUNT", width: 10, grow: true}, {head: "RUN", width: 5, right: true}, {head: "WAIT", width: 6, right: true},
			{head: "GPUS", width: 5, right: true}, {head: "GPU MEM", width: 8, right: true, rank: 3}, {head: "SHARES", width: 6, right: true, rank: 2}, {head: "USE", width: 5, right: true, rank: 2},
			{head: "GPU-HOURS", width: 9, right: true, rank: 4}, {head: "PLACE", width: 7, right: true, rank: 1},
		},
		n:     len(s.userRows),
		key:   func(i int) string { return s.userRows[i].user + " " + s.userRows[i].account },
		cells: func(i int) []cell { return userCells(s.userRows[i]) },
		empty: "no user has a job, and there are no accounts",
	}
}

func userCells(r *userRow) []cell {
	shares, use, hours, place := "-", "-", "-", "-"
	if u := r.use; u != nil {
		shares, use = fmt.Sprintf("%.0f%%", 100*u.GetSharesPart()), fmt.Sprintf("%.0f%%", 100*u.GetUsePart())
		hours = fmt.Sprintf("%.1f", float64(u.GetGpuUs())/3600e6)
		if u.GetRank() > 0 {
			place = fmt.Sprintf("%d/%d", u.GetRank(), u.GetOf())
		}
	}
	account := cmp.Or(r.account, "-")
	return []cell{
		text(r.user), text(account), styled(green, strconv.Itoa(r.running)), styled(yellow, strconv.Itoa(r.waiting)), text(strconv.Itoa(r.gpus)),
		text(gib(r.memMiB) + "G"), text(shares), text(use), text(hours), text(place),
	}
}
