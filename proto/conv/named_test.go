package conv

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
)

// TestNamedParts: a spec is stored with the name of what lies elsewhere, and is the
// same again where that is there; nowhere else is it taken for one that has nothing.
func TestNamedParts(t *testing.T) {
	t.Parallel()
	b := cluster.HoldBulk([]string{"A=b"}, []byte("script"))
	sum := b.Sum()
	j := &cluster.Job{ID: 7, State: cluster.JobPending, Spec: &cluster.Spec{Name: "n", Command: []string{"true"}, Bulk: b}}
	for _, name := range []string{"job", "spec"} {
		m := JobNaming(j).Spec
		if name == "spec" {
			m = SpecNaming(j.Spec)
		}
		if !bytes.Equal(m.Bulk, sum[:]) || len(m.Env)+len(m.Script) > 0 {
			t.Errorf("%s: stored as %v", name, m)
		}
	}
	find := func(has cluster.Bulk) func([]byte) cluster.Bulk {
		return func(name []byte) cluster.Bulk {
			if !bytes.Equal(name, sum[:]) {
				t.Errorf("looked for %x", name)
			}
			return has
		}
	}
	got, err := JobNamed(JobNaming(j), find(b))
	if err != nil || got.Spec.Bulk != b {
		t.Fatalf("came back as %+v, %v", got, err)
	}
	env, script := got.Spec.Large()
	if d := cmp.Diff([]string{"A=b"}, env); d != "" || string(script) != "script" {
		t.Errorf("has %v and %q", env, script)
	}
	if _, err := SpecNamed(SpecNaming(j.Spec), find(nil)); !errors.Is(err, ErrNoBulk) {
		t.Errorf("where nothing is kept apart: %v", err)
	}
	if _, err := JobNamed(JobNaming(j), find(nil)); !errors.Is(err, ErrNoBulk) {
		t.Errorf("where it is not there: %v", err)
	}
	both := SpecNaming(j.Spec)
	both.Script = []byte("another")
	if s, err := SpecNamed(both, find(b)); err == nil {
		t.Errorf("with a script beside the name: %+v", s)
	}
	whole := &cluster.Spec{Name: "n", Env: []string{"A=b"}}
	if m := SpecNaming(whole); len(m.Bulk) > 0 || len(m.Env) != 1 {
		t.Errorf("with nothing elsewhere: %v", m)
	}
}
