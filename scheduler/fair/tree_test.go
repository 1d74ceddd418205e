package fair

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/cluster/draws"
)

var _ = draws.Fixed()

// nfair is an account or, without below, a user, as Fair Tree is told in prose.
type nfair struct {
	who    accounting.Assoc
	shares int64
	used   int64 // of a user; of an account what former users of it had
	below  []*nfair
	user   bool
}

// all is what was used by it and below it.
func (n *nfair) all() int64 {
	sum := n.used
	for _, b := range n.below {
		sum += b.all()
	}
	return sum
}

// share is use over shares, exactly.
func (n *nfair) share() *big.Rat { return big.NewRat(n.all(), n.shares) }

// places numbers the users: of siblings those first that had least of what they
// claim, all below one before all of the next; equals share a place, and those below
// equals are siblings.
func places(siblings []*nfair, next *int32, out map[accounting.Assoc]int32) {
	for len(siblings) > 0 {
		low := siblings[0].share()
		for _, s := range siblings {
			if s.share().Cmp(low) < 0 {
				low = s.share()
			}
		}
		var below, rest []*nfair
		users := false
		for _, s := range siblings {
			switch {
			case s.share().Cmp(low) != 0:
				rest = append(rest, s)
			case s.user:
				if !users {
					*next++
				}
				users = true
				out[s.who] = *next
			default:
				below = append(below, s.below...)
			}
		}
		places(below, next, out)
		siblings = rest
	}
}

// TestFairTreeAsNaive holds any tree of accounts against the recursion over exact
// fractions.
func TestFairTreeAsNaive(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		accounts, members := map[string]*accounting.Account{}, map[accounting.Assoc]*accounting.Member{}
		nodes := map[string]*nfair{}
		var roots []*nfair
		names := []string{"a", "b", "c", "d", "e"}
		for i, name := range names[:rapid.IntRange(1, len(names)).Draw(t, "accounts")] {
			shares := rapid.Int64Range(1, 4).Draw(t, "shares")
			parent := ""
			if i > 0 && rapid.Bool().Draw(t, "below") {
				parent = names[rapid.IntRange(0, i-1).Draw(t, "parent")]
			}
			accounts[name] = &accounting.Account{Name: name, Parent: parent, Shares: shares}
			nodes[name] = &nfair{shares: shares}
			if parent == "" {
				roots = append(roots, nodes[name])
			} else {
				nodes[parent].below = append(nodes[parent].below, nodes[name])
			}
		}
		users := map[accounting.Assoc]*nfair{}
		for uid := range cluster.UID(rapid.IntRange(1, 8).Draw(t, "users")) {
			who := accounting.Assoc{Account: names[rapid.IntRange(0, len(accounts)-1).Draw(t, "of")], UID: uid}
			shares := rapid.Int64Range(1, 3).Draw(t, "user's shares")
			members[who] = &accounting.Member{Shares: shares}
			users[who] = &nfair{who: who, shares: shares, user: true}
			nodes[who.Account].below = append(nodes[who.Account].below, users[who])
		}
		f := New(accounts, members)
		for range rapid.IntRange(0, 12).Draw(t, "uses") {
			who := accounting.Assoc{Account: names[rapid.IntRange(0, len(accounts)-1).Draw(t, "account")], UID: cluster.UID(rapid.IntRange(0, 9).Draw(t, "uid"))}
			used := rapid.Int64Range(0, 60).Draw(t, "used")
			f.Add(who, cluster.GPUTime(used))
			if u := users[who]; u != nil {
				u.used += used
			} else { // whoever it was has left the account
				nodes[who.Account].used += used
			}
		}
		want, last := map[accounting.Assoc]int32{}, int32(0)
		places(roots, &last, want)
		o := f.Order()
		for who := range users {
			if o.Place(who) != want[who] {
				t.Fatalf("%v has place %d, want %d of %v", who, o.Place(who), want[who], want)
			}
		}
		if o.Of != last {
			t.Fatalf("%d places, want %d", o.Of, last)
		}
		for name, n := range nodes {
			if f.Used(name) != cluster.GPUTime(n.all()) {
				t.Fatalf("account %s used %d, want %d", name, f.Used(name), n.all())
			}
		}
	})
}
