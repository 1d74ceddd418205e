package intern

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/berth-scheduler/berth/cluster"
)

// TestTextsIsBounded: however many different texts and users come, it
// holds no more than its bounds, and what it gives is what it was asked for.
func TestTextsIsBounded(t *testing.T) {
	t.Parallel()
	c := New()
	for i := range maxTexts + 100 {
		v := fmt.Sprintf("text-%d", i)
		got := v
		if Share(c, &got); got != v {
			t.Fatalf("%q became %q", v, got)
		}
		if len(c.texts) > maxTexts {
			t.Fatalf("%d texts are held", len(c.texts))
		}
	}
	for uid := range cluster.UID(maxOwners + 100) {
		v := []string{"python3", textOf(uid)}
		if shareLines(c.args, uid, &v); v[1] != textOf(uid) {
			t.Fatalf("user %d got %q", uid, v)
		}
		if len(c.args) > maxOwners {
			t.Fatalf("the lines of %d users are held", len(c.args))
		}
	}
}

func textOf(uid cluster.UID) string { return fmt.Sprint(uint32(uid)) }

// TestTextsShares: equal texts are one, long ones are left alone, and what
// one user's job has in common with the last is held once.
func TestTextsShares(t *testing.T) {
	t.Parallel()
	c := New()
	fresh := func(n int) string { return string(make([]byte, n)) }
	for _, tc := range []struct {
		name   string
		size   int
		shared bool
	}{{"short", 10, true}, {"at the bound", maxShared, true}, {"long", maxShared + 1, false}} {
		a, b := fresh(tc.size), fresh(tc.size)
		Share(c, &a)
		Share(c, &b)
		if got := unsafe.StringData(a) == unsafe.StringData(b); got != tc.shared {
			t.Errorf("%s: shared %t", tc.name, got)
		}
	}
	first, same, other, theirs := []string{"a", "b"}, []string{"a", "b"}, []string{"a", "c"}, []string{"a", "b"}
	shareLines(c.envs, 1, &first)
	shareLines(c.envs, 1, &same)
	shareLines(c.envs, 1, &other)
	shareLines(c.envs, 2, &theirs)
	if &first[0] != &same[0] || other[1] != "c" || &theirs[0] == &first[0] {
		t.Error("lines are not shared as they should be")
	}
}
