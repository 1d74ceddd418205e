package proposer

import (
	"errors"
	"testing"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// waiting is a proposal of a size, as the queue sees it.
func waiting(owner int64, size int) *proposal {
	return &proposal{owner: owner, size: size, cost: 1, cmds: make([]*logv1.Command, 1)}
}

func mustAdd(t *testing.T, q *queue, pr *proposal) {
	t.Helper()
	if err := q.add(pr); err != nil {
		t.Fatal(err)
	}
}

// entriesBefore takes entries until pr is in one, and returns those before it.
func entriesBefore(t *testing.T, q *queue, pr *proposal) (before [][]*proposal) {
	t.Helper()
	for {
		batch := q.take()
		if len(batch) == 0 {
			t.Fatal("a proposal was never taken")
		}
		for _, got := range batch {
			if got == pr {
				return before
			}
		}
		before = append(before, batch)
	}
}

// TestUsersTakeTurns: whoever has thousands of proposals waiting does not stand
// before another's.
func TestUsersTakeTurns(t *testing.T) {
	q := &queue{}
	for range 4000 {
		mustAdd(t, q, &proposal{owner: 1, size: 1000, cost: fsm.EntryCost / 2, cmds: make([]*logv1.Command, 1)})
	}
	one := waiting(2, 100)
	mustAdd(t, q, one)
	if before := entriesBefore(t, q, one); len(before) > 0 {
		t.Errorf("%d entries come before another user's only one", len(before))
	}
}

// TestLargeProposalsAreAlone: and what is small waits for one of them at most.
func TestLargeProposalsAreAlone(t *testing.T) {
	q := &queue{}
	for i := range 10 {
		mustAdd(t, q, waiting(int64(i%3), largeBytes))
	}
	for range 5 {
		var small []*proposal
		for i := range 20 {
			small = append(small, waiting(int64(100+i), 100))
			mustAdd(t, q, small[i])
		}
		before := entriesBefore(t, q, small[19])
		if len(before) > 1 || len(before) == 1 && len(before[0]) != 1 {
			t.Fatalf("%d entries come before what is small", len(before))
		}
	}
	left := 0
	for batch := q.take(); len(batch) > 0; batch = q.take() {
		if len(batch) != 1 {
			t.Errorf("%d large proposals in one entry", len(batch))
		}
		left++
	}
	if left < 5 || left > 6 || q.n != 0 || q.bytes != 0 || len(q.owners) != 0 {
		t.Errorf("%d large ones were left, want those that had no turn; then %d of %d bytes of %d owners wait", left, q.n, q.bytes, len(q.owners))
	}
}

// TestOrderOfOneUser: is as it was asked, also beside others'.
func TestOrderOfOneUser(t *testing.T) {
	q := &queue{}
	var want []*proposal
	for i := range 300 {
		size := 1000
		if i%7 == 0 {
			size = largeBytes
		}
		pr := waiting(int64(i%2), size)
		if i%2 == 0 {
			want = append(want, pr)
		}
		mustAdd(t, q, pr)
	}
	var got []*proposal
	for batch := q.take(); len(batch) > 0; batch = q.take() {
		size := 0
		for _, pr := range batch {
			size += pr.size
			if pr.owner == 0 {
				got = append(got, pr)
			}
		}
		if size > maxEntryBytes {
			t.Errorf("an entry of %d bytes", size)
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%d of %d came", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("proposal %d came out of turn", i)
		}
	}
}

// TestQueueIsBounded: one user fills a quarter of it, and others and the cluster
// itself have room then.
func TestQueueIsBounded(t *testing.T) {
	for name, size := range map[string]int{"many": 1, "large": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			q, n := &queue{}, 0
			for q.add(waiting(7, size)) == nil {
				n++
			}
			if most := min(maxPending, maxPendingBytes/size) / ownerShare; n != most {
				t.Errorf("one user has %d waiting, want %d", n, most)
			}
			mustAdd(t, q, waiting(8, size))
			for i := 9; q.add(waiting(int64(i), size)) == nil; i++ {
				n++
			}
			err := q.add(waiting(-1, size))
			if e, ok := errors.AsType[*cluster.Error](err); !ok || e.Code != cluster.CodeExhausted {
				t.Errorf("a full queue takes more: %v", err)
			}
			if got := len(q.all()); got != q.n {
				t.Errorf("%d are left of %d", got, q.n)
			}
		})
	}
}
