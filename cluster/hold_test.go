package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseDepends(t *testing.T) {
	t.Parallel()
	var many strings.Builder
	many.WriteString("after")
	for i := range MaxDepends + 1 {
		fmt.Fprintf(&many, ":%d", i+1)
	}
	for _, tc := range []struct {
		text string
		want []Dependency
		any  bool
		err  string
	}{
		{"afterok:17", []Dependency{{Kind: AfterOK, Job: 17}}, false, ""},
		{"AfterAny:1:2", []Dependency{{Kind: AfterAny, Job: 1}, {Kind: AfterAny, Job: 2}}, false, ""},
		{"after:1,singleton", []Dependency{{Kind: After, Job: 1}, {Kind: Singleton, Job: 0}}, false, ""},
		{"afternotok:1?afterok:2", []Dependency{{Kind: AfterNotOK, Job: 1}, {Kind: AfterOK, Job: 2}}, true, ""},
		{"12", []Dependency{{Kind: AfterAny, Job: 12}}, false, ""},
		{"afterok:1:1", []Dependency{{Kind: AfterOK, Job: 1}}, false, ""},
		{"afterok:1,afterok:2?after:3", nil, false, "holds both , and ?"},
		{"after:1+5", []Dependency{{Kind: After, Job: 1, Delay: 5 * time.Minute}}, false, ""},
		{"after:1+5:2:3_7+1", []Dependency{{Kind: After, Job: 1, Delay: 5 * time.Minute}, {Kind: After, Job: 2}, {Kind: After, Job: 3, Task: 7, OneTask: true, Delay: time.Minute}}, false, ""},
		{"afterok:12_0,afterany:13_*", []Dependency{{Kind: AfterOK, Job: 12, OneTask: true}, {Kind: AfterAny, Job: 13}}, false, ""},
		{"afterok:1+5", nil, false, "+MINUTES goes with after alone"},
		{"after:1+", nil, false, "+MINUTES goes with after alone"},
		{"after:1+99999999", nil, false, "+MINUTES goes with after alone"},
		{"afterok:1_", nil, false, "one task of the array"},
		{"afterok:1_[2-3]", nil, false, "one task of the array"},
		{"afterok:", nil, false, "want KIND:ID"},
		{"afterok:0", nil, false, "want KIND:ID"},
		{"aftercorr:1", []Dependency{{Kind: AfterCorr, Job: 1}}, false, ""},
		{"afterwards:1", nil, false, "the kinds are"},
		{"singleton:1", nil, false, "names no job"},
		{"", nil, false, "want KIND:ID"},
		{"after:1" + strings.Repeat(",singleton,after:1", 501), []Dependency{{Kind: After, Job: 1}, {Kind: Singleton, Job: 0}}, false, ""},
		{many.String(), nil, false, "at most 1000"},
	} {
		got, anyOf, err := ParseDepends(tc.text)
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%.40q: %v, want %q in it", tc.text, err, tc.err)
			}
			continue
		}
		if d := cmp.Diff(tc.want, got); d != "" || anyOf != tc.any || err != nil {
			t.Errorf("%q: any %t, %v, %s", tc.text, anyOf, err, d)
		}
	}
}

// FuzzParseDepends: what is read can be written and read again.
func FuzzParseDepends(f *testing.F) {
	for _, s := range []string{"afterok:17", "after:1:2,singleton", "afterany:1?afternotok:2", "3", "afterok:1+5", ",?:"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		deps, anyOf, err := ParseDepends(s)
		if err != nil {
			return
		}
		if err := (&Spec{Depends: deps}).checkWaiting(); err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		var parts []string
		for _, d := range deps {
			parts = append(parts, d.String())
		}
		again, same, err := ParseDepends(strings.Join(parts, map[bool]string{false: ",", true: "?"}[anyOf]))
		if d := cmp.Diff(deps, again); err != nil || d != "" || len(deps) > 1 && same != anyOf {
			t.Fatalf("%q: read again: %v, %s", s, err, d)
		}
	})
}

func TestBarred(t *testing.T) {
	t.Parallel()
	s := &Spec{Begin: 100, Depends: []Dependency{{Kind: AfterOK, Job: 1}, {Kind: AfterOK, Job: 2}}}
	for name, tc := range map[string]struct {
		job  Job
		at   Time
		want ReasonCode
	}{
		"held first":    {Job{Spec: s, Hold: &Hold{}, Depends: []DependState{DependOpen, DependOpen}}, 0, ReasonHeldUser},
		"by an admin":   {Job{Spec: s, Hold: &Hold{Admin: true}, Depends: []DependState{DependMet, DependMet}}, 200, ReasonHeldAdmin},
		"others next":   {Job{Spec: s, Depends: []DependState{DependMet, DependOpen}}, 0, ReasonDependency},
		"never":         {Job{Spec: s, Depends: []DependState{DependFailed, DependOpen}}, 0, ReasonDependNever},
		"then time":     {Job{Spec: s, Depends: []DependState{DependMet, DependMet}}, 99, ReasonBeginTime},
		"nothing more":  {Job{Spec: s, Depends: []DependState{DependMet, DependMet}}, 100, ""},
		"one is enough": {Job{Spec: &Spec{DependAny: true, Depends: s.Depends}, Depends: []DependState{DependMet, DependFailed}}, 0, ""},
		"none is left":  {Job{Spec: &Spec{DependAny: true, Depends: s.Depends}, Depends: []DependState{DependFailed, DependFailed}}, 0, ReasonDependNever},
	} {
		if got := tc.job.Barred(tc.at).Code; got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
