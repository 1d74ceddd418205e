package cluster

import "testing"

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
