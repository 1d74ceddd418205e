package fsm

import (
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// again are the kinds of commands that do something when they come a second time,
// and what; who proposes them asks first.
var again = map[string]string{
	"apply_plan":  "a job that its own starts set free moves or starts; none starts twice",
	"add_webhook": "another one with the same address",
	"fence_node":  "its sessions of since then are void, too",
	"import_runs": "the same runs count twice",
	"drain_gpu":   "a resume is noted once more: it also voids what the agent has come to hold against the card",
}

// revisions are what every change of an entity counts, though it stays as it is.
var revisions = regexp.MustCompile(`\b(revision|resumed):\d+`)

// entitiesHash is a state's hash without what counts entries and time.
func entitiesHash(f *FSM) string {
	return string(f.st.hash.Now(&logv1.Meta{}))
}

// attemptsOf are how many each job that was started has.
func attemptsOf(f *FSM) map[cluster.JobID]int {
	out := map[cluster.JobID]int{}
	for _, j := range f.st.roll.Jobs.List() {
		if len(j.Attempts) > 0 {
			out[j.ID] = len(j.Attempts)
		}
	}
	return out
}

// TestTheSameCommandTwice: a leader whose answer was lost proposes a command again,
// and a client asks again. What was done is not done again: the second one changes
// nothing, but where that is its meaning.
func TestTheSameCommandTwice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := New(Options{})
		w := newWholeWorld(t, f)
		index, now := uint64(0), t0
		step := func(cmd *logv1.Command) {
			now = now.Add(time.Duration(w.draw("pause", 300)) * time.Second)
			data := encode(t, testTerm, now, cmd)
			index++
			applyTo(t, f, index, testTerm, data)
			once, hash, tries := contents(t, f), entitiesHash(f), attemptsOf(f)
			index++
			r := applyTo(t, f, index, testTerm, data)[0]
			what := fmt.Sprintf("entry %d, %s again", index, kindOf(cmd))
			if err := checkDerived(f.st); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			after := contents(t, f)
			for id, n := range attemptsOf(f) {
				if was := tries[id]; was > 0 && was != n {
					t.Fatalf("%s: job %d has %d attempts, and had %d", what, id, n, was)
				}
			}
			switch same := after == once; {
			case same != (hash == entitiesHash(f)):
				t.Fatalf("%s: the hash stays: %t; the state: %s", what, !same, cmp.Diff(once, after))
			case !same && r.Err != nil:
				t.Fatalf("%s: was refused (%v) and changed the state: %s", what, r.Err, cmp.Diff(once, after))
			case again[kindOf(cmd)] != "":
			case revisions.ReplaceAllString(once, "") != revisions.ReplaceAllString(after, ""):
				t.Fatalf("%s: changed the state: %s", what, cmp.Diff(once, after))
			}
		}
		step(initCmd("c1", worldKeep))
		step(registerCmd(node("n1", "boot1", 2)))
		step(registerCmd(node("n2", "boot1", 2)))
		for range rapid.IntRange(10, 60).Draw(t, "entries") {
			step(w.command())
		}
	})
}
