package cluster

import (
	"fmt"
	"strings"
	"testing"
)

// secretive is a job that runs with a secret, on two nodes.
func secretive(id JobID, uid UID, no uint32) *Job {
	j := &Job{ID: id, Owner: Owner{UID: uid}, State: JobRunning}
	for n := uint32(1); n < no; n++ {
		j.Attempts = append(j.Attempts, Attempt{No: n, State: JobNodeFail, Berth: Berth{Node: "n1"}})
	}
	j.Attempts = append(j.Attempts, Attempt{
		No: no, State: JobRunning, Secret: "0123456789abcdef", Berth: Berth{Node: "n1"},
		Gang: &Gang{Rest: []Berth{{Node: "n2"}}, Parts: []Part{{State: JobRunning}, {State: JobRunning}}},
	})
	return j
}

// TestCredentialOpensItsAttemptAlone: nothing but the very credential of the live
// attempt, on its node, is taken.
func TestCredentialOpensItsAttemptAlone(t *testing.T) {
	t.Parallel()
	j := secretive(7, 1000, 2)
	good := j.Last().Credential(j, "n1")
	if !j.Holds(good, "n1") {
		t.Fatalf("%q is not taken", good)
	}
	if id, err := CredentialOf(good); err != nil || id != (AttemptID{Job: 7, No: 2}) || len(good) > MaxCredential {
		t.Errorf("%q is of %v, %v", good, id, err)
	}
	other := func(change func(j *Job)) string {
		o := secretive(7, 1000, 2)
		change(o)
		return o.Last().Credential(o, "n1")
	}
	for name, shown := range map[string]string{
		"none": "", "cut short": good[:len(good)-1], "longer": good + "0", "in capitals": strings.ToUpper(good), "without its attempt": good[strings.Index(good, "."):],
		"of the other node": j.Last().Credential(j, "n2"), "of another user": other(func(o *Job) { o.Owner.UID = 1001 }),
		"of another job": other(func(o *Job) { o.ID = 8 }), "of another attempt": other(func(o *Job) { o.Last().No = 3 }),
		"of another secret": other(func(o *Job) { o.Last().Secret = "fedcba9876543210" }),
	} {
		if j.Holds(shown, "n1") {
			t.Errorf("%s: %q is taken", name, shown)
		}
	}
	if j.Holds(good, "n2") || j.Holds(good, "n3") {
		t.Error("it is taken on another node")
	}
	for name, change := range map[string]func(){
		"its part on the node has ended": func() { j.Last().Gang.Parts[0].State = JobCompleted },
		"it has no secret any more":      func() { j.Last().Secret = "" },
		"it has ended":                   func() { j.Last().State, j.State = JobCompleted, JobCompleted },
	} {
		j = secretive(7, 1000, 2)
		if change(); j.Holds(good, "n1") || j.Holds("", "n1") {
			t.Errorf("it is taken though %s", name)
		}
	}
}

func TestWhatIsNoCredential(t *testing.T) {
	t.Parallel()
	sum := strings.Repeat("ab", 32)
	if _, err := CredentialOf("j7-a2." + sum); err != nil {
		t.Error(err)
	}
	for _, text := range []string{
		"", ".", "j7-a2", "j7-a2.", "j7-a2." + sum[1:], "j7-a2." + sum + "00", "j7-a0." + sum, "7-2." + sum, "j7-a2.zz" + sum[2:],
		"j7-a2." + sum + "\n", strings.Repeat("j", 4000),
	} {
		if id, err := CredentialOf(text); err == nil || text != "" && text != "." && strings.Contains(err.Error(), text) {
			t.Errorf("%q is of %v, %v", text, id, err)
		}
	}
}

// TestSecretsAreNotPrinted: whatever prints an attempt does not print its secret.
func TestSecretsAreNotPrinted(t *testing.T) {
	t.Parallel()
	a := secretive(7, 1000, 1).Last()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		if text := fmt.Sprintf(verb, *a); strings.Contains(text, "0123456789abcdef") {
			t.Errorf("%s prints %s", verb, text)
		}
	}
}
