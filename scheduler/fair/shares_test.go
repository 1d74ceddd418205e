package fair

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
)

func TestFairTree(t *testing.T) {
	t.Parallel()
	who := func(account string, uid cluster.UID) accounting.Assoc {
		return accounting.Assoc{Account: account, UID: uid}
	}
	accounts := map[string]*accounting.Account{
		"root": {Name: "root", Shares: 1}, "bio": {Name: "bio", Parent: "root", Shares: 3}, "chem": {Name: "chem", Parent: "root", Shares: 1},
		"lab": {Name: "lab", Parent: "chem", Shares: 1},
	}
	members := map[accounting.Assoc]*accounting.Member{
		who("bio", 1): {Shares: 1}, who("bio", 2): {Shares: 1}, who("lab", 3): {Shares: 1}, who("lab", 4): {Shares: 2}, who("lab", 5): {Shares: 1},
	}
	for _, c := range []struct {
		name string
		used map[accounting.Assoc]cluster.GPUTime
		want map[accounting.Assoc]int32
		of   int32
	}{
		{"nobody used anything: all are equal", nil, map[accounting.Assoc]int32{who("bio", 1): 1, who("bio", 2): 1, who("lab", 3): 2, who("lab", 4): 2, who("lab", 5): 2}, 2},
		{"three shares allow three times the use", map[accounting.Assoc]cluster.GPUTime{who("bio", 1): 290, who("lab", 3): 100},
			map[accounting.Assoc]int32{who("bio", 2): 1, who("bio", 1): 2, who("lab", 4): 3, who("lab", 5): 3, who("lab", 3): 4}, 4},
		{"an account beyond its share comes last, whoever of it used nothing", map[accounting.Assoc]cluster.GPUTime{who("bio", 1): 310, who("lab", 3): 100, who("lab", 4): 150, who("lab", 5): 80},
			map[accounting.Assoc]int32{who("bio", 2): 1, who("bio", 1): 2, who("lab", 4): 3, who("lab", 5): 4, who("lab", 3): 5}, 5},
		{"beside accounts", map[accounting.Assoc]cluster.GPUTime{who("", 9): 1, who("bio", 1): 100},
			map[accounting.Assoc]int32{who("", 9): 1, who("lab", 3): 2, who("lab", 4): 2, who("lab", 5): 2, who("bio", 2): 3, who("bio", 1): 4}, 4},
	} {
		f := New(accounts, members)
		for range 2 { // an order leaves nothing behind
			f.Reset()
			for who, u := range c.used {
				f.Add(who, u)
			}
			o := f.Order()
			got := map[accounting.Assoc]int32{}
			for who := range o.Index {
				got[who] = o.Place(who)
			}
			if d := cmp.Diff(c.want, got); d != "" || o.Of != c.of {
				t.Errorf("%s: %d places: %s", c.name, o.Of, d)
			}
		}
	}
}

// BenchmarkFairTree orders 20,000 users of 400 accounts, each of whom used
// something, decay included.
func BenchmarkFairTree(b *testing.B) {
	accounts, members := map[string]*accounting.Account{}, map[accounting.Assoc]*accounting.Member{}
	spent := map[accounting.Holder]*accounting.Spent{}
	for i := range 20 {
		top := fmt.Sprintf("top%d", i)
		accounts[top] = &accounting.Account{Name: top, Shares: int64(1 + i)}
		for k := range 20 {
			name := fmt.Sprintf("%s-lab%d", top, k)
			accounts[name] = &accounting.Account{Name: name, Parent: top, Shares: int64(1 + k)}
			for u := range 50 {
				uid := cluster.UID(1000*i + 50*k + u)
				members[accounting.Assoc{Account: name, UID: uid}] = &accounting.Member{Account: name, UID: uid, Shares: 1}
				h := accounting.Holder{Account: name, UID: uid}
				spent[h] = &accounting.Spent{Holder: h, Decayed: cluster.GPUTime(uid) * 1e9 % 977_777_777_777, At: cluster.Time(uid) * 1e6}
			}
		}
	}
	p := accounting.DefaultAccountPolicy()
	now := cluster.Time(30 * 24 * time.Hour / time.Microsecond)
	f := New(accounts, members)
	for b.Loop() {
		f.Reset()
		for h, x := range spent {
			f.Add(accounting.Assoc{Account: h.Account, UID: h.UID}, x.Left(now, &p))
		}
		if o := f.Order(); len(o.Places) != 20_000 {
			b.Fatal(len(o.Places))
		}
	}
}
