package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
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
	tests []string // the packages whose tests are to catch it
	what  string   // the mistake, in a line
	patch string   // a unified diff
}

// read returns the bugs of every *.mutants file in dir. A bug is a line
// "== ID PACKAGE...", a line that says what is wrong, and a unified diff.
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
	return all, nil
}

func split(text string) ([]mutant, error) {
	var ms []mutant
	for i, part := range strings.Split("\n"+text, "\n== ") {
		if i == 0 { // what stands before the first is a comment
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

// apply runs git apply in dir. Line numbers may be off, and one line of context
// is enough, so that a bug outlives changes around it.
func apply(ctx context.Context, dir string, m mutant, flags ...string) error {
	cmd := exec.CommandContext(ctx, "git", append([]string{"apply", "-C1", "--recount"}, flags...)...)
	cmd.Dir = dir
	cmd.Stdin = strings.NewReader(m.patch)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s no longer applies: %w\n%s", m.id, err, out)
	}
	return nil
}

// inCopy calls do with a copy of the working tree, which goes away after it.
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
		if _, err := os.Lstat(f); err == nil { // it may be deleted and not committed
			cp.Args = append(cp.Args, f)
		}
	}
	if out, err := cp.CombinedOutput(); err != nil {
		return fmt.Errorf("copy the tree: %w\n%s", err, out)
	}
	do(dir)
	return nil
}

// verdict is what became of a planted bug.
type verdict struct {
	failed []string // tests, or what else ended them
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
	switch {
	case v.err != nil:
		return v.err.Error()
	case len(v.failed) > most:
		return fmt.Sprintf("%s and %d more", strings.Join(v.failed[:most], ", "), len(v.failed)-most)
	case v.caught():
		return strings.Join(v.failed, ", ")
	default:
		return "no test of its packages fails"
	}
}

// try plants one in the copy, runs its tests, and takes it out again.
func try(ctx context.Context, dir string, m mutant, limit time.Duration) (v verdict) {
	began := time.Now()
	defer func() { v.took = time.Since(began) }()
	if v.err = apply(ctx, dir, m); v.err != nil {
		return v
	}
	defer func() { v.err = errors.Join(v.err, apply(ctx, dir, m, "--reverse")) }()
	// Without paths, the copies share what is compiled.
	test := exec.CommandContext(ctx, "go", append([]string{"test", "-trimpath", "-timeout", limit.String()}, m.tests...)...)
	test.Dir = dir
	out, err := test.CombinedOutput()
	switch {
	case err == nil || ctx.Err() != nil:
		v.err = ctx.Err()
	case strings.Contains(string(out), "[build failed]") || strings.Contains(string(out), "[setup failed]"):
		v.err = fmt.Errorf("%s does not compile:\n%s", m.id, out)
	default:
		v.failed = failures(string(out))
	}
	return v
}

var failLine = regexp.MustCompile(`^--- FAIL: (\S+)|^panic: (.+)|^(fatal error: .+)`)

// failures names the tests that failed in the output of go test, and panics.
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
