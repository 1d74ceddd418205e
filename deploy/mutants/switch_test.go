package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	sumSrc = `package sum

import "fmt"

const start = 0

type acc struct{ n int }

// Add adds.
func (a *acc) Add(ns ...int) (sum int, err error) {
	for _, n := range ns {
		a.n += n
	}
	return a.n, nil
}

func (acc) reset(to *acc, _ string) {
	*to = acc{n: start}
}

func words(a, b int, more fmt.Stringer) string { return fmt.Sprint(a, b) }

var _ = words
`
	sumTest = `package sum

import "testing"

func TestAdd(t *testing.T) {
	var a acc
	if n, err := a.Add(1, 2); n != 3 || err != nil {
		t.Error(n, err)
	}
}

func TestReset(t *testing.T) {
	a := acc{n: 3}
	if a.reset(&a, ""); a.n != 0 {
		t.Error(a)
	}
}
`
)

// TestManyAtOnce: bugs that change bodies are tried in one binary, each alone, the
// test that caught it the last time first; one that changes anything else, or
// does not compile, is not there.
func TestManyAtOnce(t *testing.T) {
	for _, needs := range []string{"git", "go"} {
		if _, err := exec.LookPath(needs); err != nil {
			t.Skip("needs ", needs)
		}
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module sum\n\ngo 1.26\n", "sum.go": sumSrc, "sum_test.go": sumTest} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	bug := func(id, from, to string) mutant {
		lines := strings.Split(sumSrc, "\n")
		at := slices.Index(lines, from)
		return mutant{id: id, tests: []string{"."}, patch: fmt.Sprintf("--- a/sum.go\n+++ b/sum.go\n@@ -%d,3 +%d,3 @@\n %s\n-%s\n+%s\n %s\n", at, at, lines[at-1], from, to, lines[at+1])}
	}
	s := newSwitched(dir)
	bugs := []struct {
		m      mutant
		in     bool
		failed []string
	}{
		{bug("sign", "\t\ta.n += n", "\t\ta.n -= n"), true, []string{"TestAdd"}},
		{bug("first", "\treturn a.n, nil", "\treturn ns[0], nil"), true, []string{"TestAdd"}},
		{bug("kept", "\t*to = acc{n: start}", "\tto.n += start"), true, []string{"TestReset"}},
		{bug("same", "func words(a, b int, more fmt.Stringer) string { return fmt.Sprint(a, b) }", "func words(a, b int, more fmt.Stringer) string { return fmt.Sprint(b, a) }"), true, nil},
		{bug("type", "\treturn a.n, nil", "\treturn nil, nil"), false, nil},
		{bug("const", "const start = 0", "const start = 1"), false, nil},
	}
	var ms []mutant
	var in []bool
	for i, c := range bugs {
		ok, err := s.add(t.Context(), c.m, i+1)
		if data, rerr := os.ReadFile(filepath.Join(dir, "sum.go")); err != nil || string(data) != sumSrc {
			t.Fatalf("%s: %v, %v, the tree is\n%s", c.m.id, err, rerr, data)
		}
		ms, in = append(ms, c.m), append(in, ok)
	}
	if err := s.build(t.Context(), ms, in); err != nil {
		t.Fatal(err)
	}
	for i, c := range bugs {
		if in[i] != c.in {
			t.Errorf("%s: in the binary %t, want %t", c.m.id, in[i], c.in)
		}
		if !c.in {
			continue
		}
		c.m.last = catcher{".", "TestReset"} // which is not always so
		v := s.try(t.Context(), c.m, i+1, options{timeout: time.Minute})
		var failed []string
		for _, f := range v.failed {
			failed = append(failed, f.test)
		}
		if !slices.Equal(failed, c.failed) || v.err != nil {
			t.Errorf("%s: failed %q, %v, want %q", c.m.id, failed, v.err, c.failed)
		}
	}
}
