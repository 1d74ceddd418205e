package limit_test

import (
	"testing"
	"testing/synctest"

	"github.com/berth-scheduler/berth/coordinator/limit"
)

// TestUnread: large answers are refused when too much lies unread, small ones are not, and who
// has too much begins nothing new until it was read.
func TestUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mib = 1 << 20
		tab := newTable(limit.Config{Bytes: 16 * mib, BytesTotal: 20 * mib})
		call, err := tab.Begin(alice, limit.Plain)
		if err != nil {
			t.Fatal(err)
		}
		first, err := call.Unread(9 * mib)
		if err != nil {
			t.Fatalf("one alone, however large: %v", err)
		}
		if _, err := call.Unread(mib); err == nil {
			t.Error("another large one beside it")
		}
		small, err := call.Unread(1000)
		if err != nil {
			t.Errorf("a small one: %v", err)
		}
		call.End()
		if _, err := tab.Begin(alice, limit.Plain); err == nil {
			t.Error("a call of who reads nothing")
		}
		other, err := tab.Begin(bob, limit.Plain)
		if err != nil {
			t.Fatalf("another user: %v", err)
		}
		defer other.End()
		if _, err := other.Unread(15 * mib); err == nil {
			t.Error("more than all may have unread")
		}
		for range 2 { // once counts
			first()
			small()
		}
		again, err := tab.Begin(alice, limit.Plain)
		if err != nil {
			t.Fatalf("when all was read: %v", err)
		}
		defer again.End()
		if _, err := other.Unread(15 * mib); err != nil {
			t.Errorf("when all was read: %v", err)
		}
	})
	var none *limit.Call
	if read, err := none.Unread(1); err != nil {
		t.Error(err)
	} else {
		read()
	}
}
