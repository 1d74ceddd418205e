package cluster

import (
	"testing"
	"time"
)

func TestScopes(t *testing.T) {
	t.Parallel()
	a, b, c := &Owner{UID: 1, GID: 10}, &Owner{UID: 2, GID: 10}, &Owner{UID: 3, GID: 30}
	for _, tc := range []struct {
		word                   string
		scope                  Scope
		self, group, strangers bool
	}{
		{"anyone", ScopeAnyone, true, true, true},
		{"", ScopeAnyone, true, true, true},
		{"same-group", ScopeSameGroup, true, true, false},
		{"same-user", ScopeSameUser, true, false, false},
		{"never", ScopeNever, false, false, false},
	} {
		s, err := ParseScope(tc.word)
		if err != nil || s != tc.scope {
			t.Errorf("ParseScope(%q) = %q, %v", tc.word, s, err)
		}
		if s.Allows(a, a) != tc.self || s.Allows(a, b) != tc.group || s.Allows(a, c) != tc.strangers || s.Allows(c, a) != tc.strangers {
			t.Errorf("%s allows: itself %t, its group %t, strangers %t", s, s.Allows(a, a), s.Allows(a, b), s.Allows(a, c))
		}
		if back, err := ParseScope(s.String()); err != nil || back != s || s.Among() == "" {
			t.Errorf("%q is written as %q", tc.word, s)
		}
	}
	if s, err := ParseScope("friends"); err == nil || s.Allows(a, a) {
		t.Errorf("a word that is not known gives %q, %v", s, err)
	}
	if (Scope("friends")).Allows(a, a) {
		t.Error("a stored word that is not known lets jobs share")
	}
}

func TestSwitches(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": "", "1": "1@5m0s", "2@90s": "2@1m30s", "3@0s": "3@0s", "0": "!", "-1": "!", "x": "!", "1@": "!", "1@-5s": "!", "1@1ms": "!", "1@721h": "!", "70000": "!", "1@1h@2h": "!",
	} {
		s, err := ParseSwitches(in)
		if got := s.String(); (err != nil) != (want == "!") || err == nil && got != want {
			t.Errorf("%q: %q, %v, want %q", in, got, err, want)
		}
		if again, err := ParseSwitches(s.String()); err != nil || again != s {
			t.Errorf("%q is read back as %v, %v", s, again, err)
		}
	}
	j := &Job{Spec: &Spec{Nodes: 2, Where: &Where{Switches: Switches{1, time.Minute}}}, Eligible: 7}
	for at, want := range map[Time]int{7: 1, Time(7 + time.Minute.Microseconds() - 1): 1, Time(7 + time.Minute.Microseconds()): 0} {
		if most, _ := j.FewSwitches(at); most != want {
			t.Errorf("at %d it is %d", at, most)
		}
	}
	if j.Spec.Nodes = 1; func() int { most, _ := j.FewSwitches(7); return most }() != 0 {
		t.Error("a job on one node waits for switches")
	}
}
