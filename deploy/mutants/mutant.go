package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// mutant is one bug to plant.
type mutant struct {
	id    string
	tests []string // the packages whose tests should catch it
	what  string   // the mistake, in one line
	patch string   // a unified diff
	last  catcher  // the test that caught it the last time, if any
}

// folders returns the folders whose files it changes.
func (m *mutant) folders() (all []string) {
	for line := range strings.Lines(m.patch) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "+++ b/")
		if f := filepath.Dir(name); ok && !slices.Contains(all, f) {
			all = append(all, f)
		}
	}
	return all
}

// catcher is a test of a package; without a test it means all of them.
type catcher struct{ pkg, test string }

// read returns the bugs of every *.mutants file in dir. A bug is a line "== ID PACKAGE...", a
// line that says what is wrong, and a unified diff.
func read(dir string) ([]mutant, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.mutants"))
	if err != nil {
		return nil, err
	}
	var all []mutant
	seen := map[string]bool{}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		ms, err := split(string(data))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
		for _, m := range ms {
			if seen[m.id] {
				return nil, fmt.Errorf("%s: %s appears twice", f, m.id)
			}
			seen[m.id] = true
		}
		all = append(all, ms...)
	}
	last, err := catchers(filepath.Join(dir, caughtFile))
	for i := range all {
		if c := last[all[i].id]; slices.Contains(all[i].tests, c.pkg) {
			all[i].last = c
		}
	}
	return all, err
}

// caughtFile records which test caught each bug the last time: a line "ID PACKAGE TEST".
const caughtFile = "caught"

func catchers(path string) (map[string]catcher, error) {
	last := map[string]catcher{}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return last, nil
	}
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line)
		if len(words) != 3 {
			return nil, fmt.Errorf("%s: line %q: want an id, a package and a test", path, strings.TrimSpace(line))
		}
		last[words[0]] = catcher{words[1], words[2]}
	}
	return last, err
}

// note records which tests caught the bugs just tried, and keeps the entries of others; it
// drops those of bugs that no longer exist.
func note(dir string, all []mutant, now map[string]verdict) error {
	var lines []string
	for _, m := range all {
		c := m.last
		if v, tried := now[m.id]; tried && v.err == nil {
			c = catcher{}
			for _, f := range v.failed {
				if strings.HasPrefix(f.test, "Test") {
					c = f
					break
				}
			}
		}
		if c.test != "" {
			lines = append(lines, fmt.Sprintln(m.id, c.pkg, c.test))
		}
	}
	slices.Sort(lines)
	return os.WriteFile(filepath.Join(dir, caughtFile), []byte(strings.Join(lines, "")), 0o644)
}

func split(text string) ([]mutant, error) {
	var ms []mutant
	for i, part := range strings.Split("\n"+text, "\n== ") {
		if i == 0 { // the part before the first is a comment
			continue
		}
		head, rest, _ := strings.Cut(part, "\n")
		what, patch, _ := strings.Cut(rest, "\n")
		words := strings.Fields(head)
		if len(words) < 2 || what == "" || !strings.HasPrefix(patch, "--- a/") {
			return nil, fmt.Errorf("bug %q: want a line with its id and packages, one that says what is wrong, and a diff", head)
		}
		ms = append(ms, mutant{id: words[0], tests: words[1:], what: what, patch: strings.TrimRight(patch, "\n") + "\n"})
	}
	return ms, nil
}

// apply runs git apply in dir. Line numbers may be off, and one line of context is enough, so
// that a bug survives changes around it.
func apply(ctx context.Context, dir string, m mutant, flags ...string) error {
	cmd := exec.CommandContext(ctx, "git", append([]string{"apply", "-C1", "--recount"}, flags...)...)
	cmd.Dir = dir
	cmd.Stdin = strings.NewReader(m.patch)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s no longer applies: %w\n%s", m.id, err, out)
	}
	return nil
}

// inCopy calls do with a copy of the working tree, which is removed afterwards.
func inCopy(ctx context.Context, do func(dir string)) (err error) {
	dir, err := os.MkdirTemp("", "berth-mutants-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Chmod(dir, 0o755); err != nil { // some tests run as other users
		return err
	}
	list := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	files, err := list.Output()
	if err != nil {
		return fmt.Errorf("list the files of the tree: %w", err)
	}
	cp := exec.CommandContext(ctx, "cp", "--parents", "-p", "--target-directory", dir)
	for f := range strings.SplitSeq(strings.TrimRight(string(files), "\x00"), "\x00") {
		if _, err := os.Lstat(f); err == nil { // it may be deleted but not committed
			cp.Args = append(cp.Args, f)
		}
	}
	if out, err := cp.CombinedOutput(); err != nil {
		return fmt.Errorf("copy the tree: %w\n%s", err, out)
	}
	do(dir)
	return nil
}

// verdict is the result of planting a bug.
type verdict struct {
	failed []catcher // tests, or what else ended them
	took   time.Duration
	err    error // it could not be tried
}

func (v verdict) caught() bool { return len(v.failed) > 0 }

func (v verdict) word() string {
	switch {
	case v.err != nil:
		return "ERROR"
	case v.caught():
		return "caught"
	default:
		return "MISSED"
	}
}

func (v verdict) detail() string {
	const most = 4
	var names []string
	for _, c := range v.failed[:min(most, len(v.failed))] {
		names = append(names, c.test)
	}
	switch {
	case v.err != nil:
		return v.err.Error()
	case len(v.failed) > most:
		return fmt.Sprintf("%s and %d more", strings.Join(names, ", "), len(v.failed)-most)
	case v.caught():
		return strings.Join(names, ", ")
	default:
		return "no test of its packages fails"
	}
}

// try plants a bug in the copy, runs its tests, and removes it again. The test that caught it
// the last time runs first, and alone: if it does so again, the rest of its package need not
// run.
func try(ctx context.Context, dir string, m mutant, o options) (v verdict) {
	began := time.Now()
	defer func() { v.took = time.Since(began) }()
	if v.err = apply(ctx, dir, m); v.err != nil {
		return v
	}
	defer func() { v.err = errors.Join(v.err, apply(ctx, dir, m, "--reverse")) }()
	if last := m.last; last.test != "" && !o.all {
		v.by(ctx, dir, m, last, o)
	}
	for _, pkg := range m.tests {
		if v.err != nil || v.caught() && !o.all {
			break
		}
		v.by(ctx, dir, m, catcher{pkg: pkg}, o)
	}
	return v
}

// by runs the tests of a package, or one of them.
func (v *verdict) by(ctx context.Context, dir string, m mutant, c catcher, o options) {
	// Without paths, the copies share compiled packages.
	args := []string{"test", "-trimpath", "-vet=off", "-timeout", o.timeout.String()}
	if !o.all {
		args = append(args, "-failfast")
	}
	if c.test != "" {
		args = append(args, "-run", "^"+c.test+"$")
	}
	args = append(args, c.pkg)
	if draws(filepath.Join(dir, c.pkg)) {
		args = append(args, "-rapid.shrinktime=1ms") // the existence of a failing case is enough
	}
	test := exec.CommandContext(ctx, "go", args...)
	test.Dir = dir
	out, err := test.CombinedOutput()
	switch {
	case err == nil || ctx.Err() != nil:
		v.err = ctx.Err()
	case strings.Contains(string(out), "[build failed]") || strings.Contains(string(out), "[setup failed]"):
		v.err = fmt.Errorf("%s does not compile:\n%s", m.id, out)
	default:
		for _, name := range failures(string(out)) {
			v.failed = append(v.failed, catcher{c.pkg, name})
		}
	}
}

// draws reports whether a package's tests generate random cases, and so know the flags of
// rapid.
func draws(dir string) bool {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return false
	}
	return slices.ContainsFunc(files, func(f string) bool {
		data, err := os.ReadFile(f)
		return err == nil && bytes.Contains(data, []byte(`"pgregory.net/rapid"`))
	})
}

var failLine = regexp.MustCompile(`^--- FAIL: (\S+)|^panic: (.+)|^(fatal error: .+)`)

// failures returns the tests that failed according to the output of go test, and panics.
func failures(out string) []string {
	var names []string
	for sc := bufio.NewScanner(strings.NewReader(out)); sc.Scan(); {
		if m := failLine.FindStringSubmatch(sc.Text()); m != nil {
			name := strings.Join(m[1:], "")
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	if len(names) == 0 {
		names = []string{"go test failed"}
	}
	return names
}
