package limit_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/limit"
)

var alice, bob = limit.Who{UID: 1001}, limit.Who{UID: 1002}

func newTable(cfg limit.Config) *limit.Table {
	return limit.New(cfg, time.Now, prometheus.NewRegistry())
}

// flood begins calls of a class until one is refused, and returns those that
// were let in.
func flood(t *testing.T, tab *limit.Table, who limit.Who, class limit.Class) []*limit.Call {
	t.Helper()
	var in []*limit.Call
	for range 100_000 {
		c, err := tab.Begin(who, class)
		if err != nil {
			if r, ok := errors.AsType[*limit.Refusal](err); !ok || r.After <= 0 {
				t.Fatalf("refused without a time to ask again: %v", err)
			}
			return in
		}
		if err := c.Arrived(100); err != nil {
			t.Fatal(err)
		}
		in = append(in, c)
	}
	t.Fatal("a flood was never refused")
	return nil
}

// TestFloodLeavesTheOthersRoom: whatever one user does, another's call is let in.
func TestFloodLeavesTheOthersRoom(t *testing.T) {
	for name, x := range map[string]struct {
		class limit.Class
		want  int
	}{"plain": {limit.Plain, 128}, "expensive": {limit.Expensive, 4}, "lasting": {limit.Lasting, 256}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tab := newTable(limit.Config{})
				in := flood(t, tab, alice, x.class)
				if len(in) != x.want {
					t.Errorf("%d calls under way at once, want %d", len(in), x.want)
				}
				for _, c := range flood(t, tab, bob, x.class) {
					c.End()
				}
				for _, c := range in {
					c.End()
					c.End() // counted once
				}
				if again := flood(t, tab, alice, x.class); len(again) != x.want {
					t.Errorf("%d after all ended, want %d", len(again), x.want)
				}
			})
		})
	}
}

// TestRate: a loop of several hundred a second goes on for ever, a faster one
// is slowed down to the rate, and who waits as told is let in.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := newTable(limit.Config{})
		call := func(who limit.Who) error {
			c, err := tab.Begin(who, limit.Plain)
			if err == nil {
				c.End()
			}
			return err
		}
		for range 10_000 { // 400 a second
			time.Sleep(2500 * time.Microsecond)
			if err := call(alice); err != nil {
				t.Fatal(err)
			}
		}
		n := 0
		for range 100_000 { // 10,000 a second for ten seconds
			time.Sleep(100 * time.Microsecond)
			if call(alice) == nil {
				n++
			}
		}
		if n < 6900 || n > 7100 { // 2,000 at once and 500 a second
			t.Errorf("%d calls in ten seconds, want some 7000", n)
		}
		err := call(alice)
		r, ok := errors.AsType[*limit.Refusal](err)
		if !ok {
			t.Fatalf("got %v, want a refusal", err)
		}
		time.Sleep(r.After)
		if err := call(alice); err != nil {
			t.Errorf("after the time that was named: %v", err)
		}
		for range 20_000 {
			if err := call(limit.Who{UID: 1001, Node: "n1", Admin: true}); err != nil {
				t.Fatalf("an administrator: %v", err)
			}
		}
	})
}

// TestBytes: requests that arrive, and those that are here, are bounded by user
// and in all.
func TestBytes(t *testing.T) {
	tab := newTable(limit.Config{Arriving: 3, ArrivingTotal: 8, Bytes: 100 << 10, BytesTotal: 200 << 10})
	begin := func(who limit.Who) *limit.Call {
		t.Helper()
		c, err := tab.Begin(who, limit.Plain)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	refused := func(who limit.Who) {
		t.Helper()
		if _, err := tab.Begin(who, limit.Plain); err == nil {
			t.Error("one more may arrive")
		}
	}
	a, b, c := begin(alice), begin(alice), begin(alice)
	refused(alice)
	begin(bob).End()
	d := begin(bob)
	if err := a.Arrived(1 << 20); err != nil {
		t.Errorf("one large request alone: %v", err)
	}
	if b.Arrived(1) == nil || d.Arrived(1) == nil {
		t.Error("more came beside a request larger than all that is allowed")
	}
	a.End()
	if err := errors.Join(c.Arrived(100<<10), begin(bob).Arrived(64<<10)); err != nil {
		t.Errorf("after it ended: %v", err)
	}
	if begin(bob).Arrived(1) == nil {
		t.Error("more than what is left for a user who holds something")
	}
	if begin(limit.Who{UID: 1003}).Arrived(37<<10) == nil {
		t.Error("more than all users may have")
	}
}

// TestThereIsRoomForOneMoreUser: however many users hold all that they may, the next
// one can send an ordinary request, and one that is large while they are few.
func TestThereIsRoomForOneMoreUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := newTable(limit.Config{})
		send := func(uid cluster.UID, bytes int) (*limit.Call, error) {
			c, err := tab.Begin(limit.Who{UID: uid}, limit.Plain)
			if err == nil {
				if err = c.Arrived(bytes); err != nil {
					c.End()
				}
			}
			return c, err
		}
		for n := range cluster.UID(500) {
			large := 4 << 10
			if n <= 6 {
				large = 4 << 20
			}
			if c, err := send(1000+n, large); err != nil {
				t.Fatalf("beside %d users who hold all they may, %d bytes: %v", n, large, err)
			} else {
				c.End()
			}
			held := 0
			for size := 4 << 20; size >= 32<<10; { // the debt of one who is new is no concern here
				time.Sleep(10 * time.Second)
				if _, err := send(1000+n, size); err != nil {
					size /= 2
				} else {
					held += size
				}
			}
			if n == 0 && held != 64<<20 {
				t.Errorf("one user alone holds %d MiB, want 64", held>>20)
			}
		}
	})
}

// TestThereIsAPlaceForOneMoreUser: neither lists nor requests that arrive are
// refused because others have as many in progress as they may.
func TestThereIsAPlaceForOneMoreUser(t *testing.T) {
	for name, x := range map[string]struct {
		class limit.Class
		cfg   limit.Config
		users cluster.UID
	}{
		"arriving":  {limit.Plain, limit.Config{}, 20},
		"expensive": {limit.Expensive, limit.Config{Arriving: 100, ArrivingTotal: 1 << 20}, 6},
	} {
		synctest.Test(t, func(t *testing.T) {
			tab := newTable(x.cfg)
			for n := range x.users {
				if _, err := tab.Begin(limit.Who{UID: 1000 + n}, x.class); err != nil {
					t.Fatalf("%s, beside %d users: %v", name, n, err)
				}
				for range 100 {
					if _, err := tab.Begin(limit.Who{UID: 1000 + n}, x.class); err != nil {
						break
					}
				}
			}
		})
	}
}

// TestTableIsBounded: users who ask for nothing any more are forgotten, and the
// table takes no more than it may of those who do.
func TestTableIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := newTable(limit.Config{Users: 10})
		var open []*limit.Call
		for uid := range 10 {
			c, err := tab.Begin(limit.Who{UID: 1000, Node: string(rune('a' + uid))}, limit.Plain)
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, c)
		}
		if _, err := tab.Begin(bob, limit.Plain); err == nil {
			t.Error("an eleventh user is counted")
		}
		for _, c := range open[:9] {
			c.End()
		}
		time.Sleep(time.Minute)
		if _, err := tab.Begin(bob, limit.Plain); err != nil {
			t.Errorf("with nine idle: %v", err)
		}
		if tab.Len() != 2 {
			t.Errorf("%d users are counted, want 2", tab.Len())
		}
	})
}

// TestUnlimitedIsSo: also for administrators, who may do several times as much.
func TestUnlimitedIsSo(t *testing.T) {
	t.Parallel()
	table := limit.New(limit.Unlimited(), time.Now, prometheus.NewRegistry())
	for _, who := range []limit.Who{{UID: 1000}, {UID: 0, Admin: true}} {
		for range 300 {
			c, err := table.Begin(who, limit.Lasting)
			if err == nil {
				err = c.Arrived(4 << 20)
			}
			if err != nil {
				t.Fatalf("%+v: %v", who, err)
			}
		}
	}
}

// TestBandwidth: for how many bytes a user sends there is a rate, whatever the size
// of one request, and a large one may always come first.
func TestBandwidth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, sent := newTable(limit.Config{}), 0
		send := func(who limit.Who, n int) bool {
			c, err := tab.Begin(who, limit.Plain)
			if err == nil {
				err = c.Arrived(n)
				c.End()
			}
			return err == nil
		}
		began := time.Now()
		for time.Since(began) < 100*time.Second {
			if send(alice, 1<<20) {
				sent++
			} else {
				time.Sleep(100 * time.Millisecond)
			}
		}
		if sent < 105 || sent > 112 {
			t.Errorf("%d MiB in 100 s, want one a second and 8 more", sent)
		}
		if !send(bob, 40<<20) || send(bob, 1) {
			t.Error("a request larger than any burst is refused, or is not paid for")
		}
		root := limit.Who{UID: 0, Admin: true}
		for range 100 {
			if !send(root, 1<<20) {
				t.Fatal("an administrator is bounded")
			}
		}
	})
}

// TestWork: who had the coordinator compute for more than one may waits before the
// next call that does; other calls and other users do not.
func TestWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := newTable(limit.Config{})
		work := func(who limit.Who, class limit.Class, d time.Duration) (*limit.Call, error) {
			c, err := tab.Begin(who, class)
			if err == nil {
				c.Worked(d)
				c.End()
			}
			return c, err
		}
		worked, began := time.Duration(0), time.Now()
		for time.Since(began) < 100*time.Second {
			if _, err := work(alice, limit.Expensive, 20*time.Millisecond); err == nil {
				worked += 20 * time.Millisecond
				continue
			} else if r, ok := errors.AsType[*limit.Refusal](err); !ok || r.After <= 0 {
				t.Fatalf("refused without a time to ask again: %v", err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if worked < 10*time.Second || worked > 11*time.Second {
			t.Errorf("worked for %v of 100 s, want a tenth and half a second more", worked)
		}
		watch, err := work(alice, limit.Plain, time.Second)
		if err != nil {
			t.Fatalf("a call that costs little: %v", err)
		}
		if watch.Rest() < 5*time.Second {
			t.Errorf("a stream rests for %v after a second of work", watch.Rest())
		}
		if _, err := work(alice, limit.Lasting, 0); err == nil {
			t.Error("a watch is let in though its user owes time")
		}
		if _, err := work(bob, limit.Expensive, time.Hour); err != nil {
			t.Errorf("another user: %v", err)
		}
		time.Sleep(20 * time.Second)
		if _, err := work(bob, limit.Expensive, 0); err != nil {
			t.Errorf("after the longest wait: %v", err)
		}
		for range 100 {
			if _, err := work(limit.Who{UID: 0, Admin: true}, limit.Expensive, time.Second); err != nil {
				t.Fatalf("an administrator: %v", err)
			}
		}
	})
}

// TestPause: of who does not wait though refused nothing is read for a while, on
// none of the user's connections.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := newTable(limit.Config{Expensive: 1})
		flood := func(who limit.Who, n int) {
			for range n {
				if c, err := tab.Begin(who, limit.Expensive); err == nil {
					defer c.End()
				}
			}
		}
		flood(alice, 150)
		if d := tab.Came(alice.UID, 0); d != 0 {
			t.Errorf("a pause of %v after 150 calls", d)
		}
		flood(alice, 100)
		if d := tab.Came(alice.UID, 0); d < 300*time.Millisecond || d > time.Second {
			t.Errorf("a pause of %v after 250 calls, want half a second", d)
		}
		conns := limit.NewConns(func(cluster.UID) int { return 10 }, 10, tab.Came)
		took := func(uid cluster.UID) time.Duration {
			here, there := net.Pipe()
			conn, _, err := conns.Credentials(insecure.NewCredentials(), func(credentials.AuthInfo) (cluster.UID, bool) { return uid, true }).ServerHandshake(here)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			go func() { _, _ = there.Write([]byte("x")) }()
			began := time.Now()
			if n, err := conn.Read(make([]byte, 1)); n != 1 || err != nil {
				t.Errorf("read %d bytes, %v", n, err)
			}
			return time.Since(began)
		}
		if d := took(bob.UID); d != 0 {
			t.Errorf("another user's bytes took %v", d)
		}
		if d := took(alice.UID); d < 300*time.Millisecond {
			t.Errorf("bytes of who floods took %v", d)
		}
		time.Sleep(time.Second)
		if d := took(alice.UID); d != 0 {
			t.Errorf("bytes took %v after a second of silence", d)
		}
	})
}

// TestTurns: what computes for long lets what waits come between, and is charged
// for what it took and not for its waits.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, turns := newTable(limit.Config{}), limit.NewTurns(1)
		begin := func(who limit.Who) *limit.Call {
			c, err := tab.Begin(who, limit.Expensive)
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		long, short := begin(alice), begin(bob)
		a, err := turns.Take(t.Context(), long)
		if err != nil {
			t.Fatal(err)
		}
		between := make(chan time.Time, 1)
		began := time.Now()
		go func() {
			b, err := turns.Take(t.Context(), short)
			if err != nil {
				t.Error(err)
				return
			}
			time.Sleep(time.Millisecond)
			b.End()
			b.End()
			between <- time.Now()
		}()
		synctest.Wait()
		for range 1000 {
			time.Sleep(time.Millisecond)
			if err := a.Step(); err != nil {
				t.Fatal(err)
			}
		}
		a.End()
		if at := (<-between).Sub(began); at > 3*time.Millisecond {
			t.Errorf("a millisecond of work took %v beside a second of another", at)
		}
		if owed := long.Rest(); owed < 3900*time.Millisecond || owed > 4*time.Second { // ten seconds, of which one has gone and five may be owed
			t.Errorf("owes %v for a second of work", owed)
		}
		if short.Rest() != 0 {
			t.Error("the short one owes what it waited")
		}
		ctx, cancel := context.WithCancel(t.Context())
		held, _ := turns.Take(t.Context(), nil)
		go cancel()
		if _, err := turns.Take(ctx, short); err == nil {
			t.Error("two have a turn at once")
		}
		held.End()
		var none *limit.Turn
		none.End()
		if err := none.Step(); err != nil {
			t.Error(err)
		}
	})
}
