// Package fair orders users by how much they were served relative to their shares.
package fair

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
)

// Tree orders users by what they were served, the least first: it is Fair Tree of
// Cox and Morrison (Slurm 14.11). At each level of the accounts those go first that
// had less relative to their shares, and all users of one account before all of the
// next, so a user below a well-served account gains nothing from what its other
// users left. A classic factor, 2^(-use/shares) of the user alone, dilutes with
// each level: users of an account within its share lose places to users of one
// beyond it.
//
// The tree is built once for a set of accounts; then each order costs a sort of
// siblings. It is not safe for concurrent use.
type Tree struct {
	index map[accounting.Assoc]int32 // of users in users
	users []fairNode
	root  fairNode
	all   []*fairNode // accounts, parents before children
	at    map[string]*fairNode
	// The parts of accounts and of a user without one, see accounting.Fair.
	parts  map[string]float64
	single float64
}

// fairNode is an account, or a user.
type fairNode struct {
	user         int32 // -1 for an account
	shares, used uint64
	accounts     []*fairNode
	members      []int32
	own          uint64  // of users who left it
	part         float64 // of all shares
}

// New returns the tree of accounts and their members; it keeps neither map. Users
// without an account are siblings of the top accounts with one share each, once
// they used something.
func New(accounts map[string]*accounting.Account, members map[accounting.Assoc]*accounting.Member) *Tree {
	f := &Tree{index: make(map[accounting.Assoc]int32, len(members)), users: make([]fairNode, 0, len(members)), at: make(map[string]*fairNode, len(accounts))}
	names := slices.Sorted(maps.Keys(accounts))
	for _, name := range names {
		f.at[name] = &fairNode{user: -1, shares: uint64(max(1, accounts[name].Shares))}
	}
	for _, name := range names {
		parent := f.at[accounts[name].Parent]
		if parent == nil {
			parent = &f.root
		}
		parent.accounts = append(parent.accounts, f.at[name])
	}
	f.all = append(f.all, f.root.accounts...)
	for i := 0; i < len(f.all) && len(f.all) <= len(accounts); i++ {
		f.all = append(f.all, f.all[i].accounts...)
	}
	for who, m := range members {
		if n := f.at[who.Account]; n != nil {
			f.add(n, who, uint64(max(1, m.Shares)))
		}
	}
	f.divide()
	return f
}

// divide sets the part of all shares that is each account's own users'.
func (f *Tree) divide() {
	f.parts, f.root.part = make(map[string]float64, len(f.at)), 1
	for _, n := range append([]*fairNode{&f.root}, f.all...) {
		users, all := uint64(0), uint64(0)
		for _, m := range n.members {
			users += f.users[m].shares
		}
		for _, c := range n.accounts {
			all += c.shares
		}
		if all += users; all == 0 {
			users, all = 1, 1
		}
		for _, c := range n.accounts {
			c.part = n.part * float64(c.shares) / float64(all)
		}
		if n == &f.root {
			f.single = 1 / float64(all)
		}
		n.part *= float64(users) / float64(all)
	}
	for name, n := range f.at {
		f.parts[name] = n.part
	}
}

func (f *Tree) add(n *fairNode, who accounting.Assoc, shares uint64) {
	i := int32(len(f.users))
	f.index[who] = i
	f.users = append(f.users, fairNode{user: i, shares: shares})
	n.members = append(n.members, i)
}

// Reset forgets all usage.
func (f *Tree) Reset() {
	for i := range f.users {
		f.users[i].used = 0
	}
	for _, n := range f.all {
		n.own = 0
	}
}

// Add counts a user's undecayed usage.
func (f *Tree) Add(who accounting.Assoc, used cluster.GPUTime) {
	u := uint64(max(0, used))
	if i, ok := f.index[who]; ok {
		f.users[i].used += u
		return
	}
	switch n := f.at[who.Account]; {
	case n != nil:
		n.own += u
	case who.Account == "":
		f.index = maps.Clone(f.index) // others read it
		f.add(&f.root, who, 1)
		f.users[len(f.users)-1].used = u
	}
}

// Order returns the order by what was added.
func (f *Tree) Order() *accounting.Fair {
	for i := len(f.all) - 1; i >= 0; i-- {
		n := f.all[i]
		n.used = n.own
		for _, c := range n.accounts {
			n.used += c.used
		}
		for _, m := range n.members {
			n.used += f.users[m].used
		}
	}
	o := &accounting.Fair{Index: f.index, Places: make([]int32, len(f.users)), Parts: f.parts, Single: f.single}
	f.visit(f.children(&f.root, nil), o)
	return o
}

// Used returns what was added below an account, after Order.
func (f *Tree) Used(account string) cluster.GPUTime {
	if n := f.at[account]; n != nil {
		return cluster.GPUTime(n.used)
	}
	return 0
}

func (f *Tree) children(n *fairNode, to []*fairNode) []*fairNode {
	to = append(to, n.accounts...)
	for _, m := range n.members {
		to = append(to, &f.users[m])
	}
	return to
}

// compare compares usage relative to shares, exactly.
func (n *fairNode) compare(o *fairNode) int {
	ah, al := bits.Mul64(n.used, o.shares)
	bh, bl := bits.Mul64(o.used, n.shares)
	return cmp.Or(cmp.Compare(ah, bh), cmp.Compare(al, bl))
}

// visit numbers the users below siblings. Equals count as one: they have one place,
// and the users of equal accounts are ordered together.
func (f *Tree) visit(siblings []*fairNode, o *accounting.Fair) {
	slices.SortFunc(siblings, (*fairNode).compare)
	for i := 0; i < len(siblings); {
		k := i + 1
		for k < len(siblings) && siblings[i].compare(siblings[k]) == 0 {
			k++
		}
		var below []*fairNode
		users := false
		for _, n := range siblings[i:k] {
			if n.user < 0 {
				below = f.children(n, below)
				continue
			}
			if !users {
				o.Of++
			}
			users = true
			o.Places[n.user] = o.Of
		}
		if len(below) > 0 {
			f.visit(below, o)
		}
		i = k
	}
}
