package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cmd/internal/cli"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/frame"
	"github.com/berth-scheduler/berth/cmd/internal/daemon"
	"github.com/berth-scheduler/berth/cmd/internal/lab"
	"github.com/berth-scheduler/berth/cmd/internal/programs"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"
	"github.com/berth-scheduler/berth/cmd/internal/top"
)

var update = flag.Bool("update", false, "rewrite docs/reference.md")

// run runs a command of the laboratory's, which knows all programs.
func run(t *testing.T, args ...string) string {
	t.Helper()
	env := console.SystemEnv()
	var out, errs bytes.Buffer
	env.Stdout, env.Stderr, env.IsTerminal = &out, &errs, false
	if code := frame.Main(args, env, lab.Program()); code != 0 {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	return out.String()
}

// TestReference: docs/reference.md is what the program says of itself.
func TestReference(t *testing.T) {
	const path = "../../docs/reference.md"
	got := run(t, "reference")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("docs/reference.md is not what the commands say; write it with: go test ./cmd/berth -update\n%s", d)
	}
}

// TestManual: each command has a page, and none holds a request of roff's that
// is the text's.
func TestManual(t *testing.T) {
	dir, slurmDir := t.TempDir(), t.TempDir()
	run(t, "reference", "--man", dir, "--slurm-man", slurmDir)
	ours, theirs := pagesIn(t, dir), pagesIn(t, slurmDir)
	if len(ours) < 30 {
		t.Errorf("%d pages", len(ours))
	}
	for _, name := range slurm.Commands() {
		page := theirs[name+".1"]
		for _, want := range []string{".TH " + strings.ToUpper(name) + " 1", ".SH SYNOPSIS\n" + name + " ", "This is Berth's " + name} {
			if !strings.Contains(page, want) {
				t.Errorf("%s.1 lacks %q:\n%s", name, want, page)
			}
		}
	}
	for name, wants := range map[string][]string{
		"sbatch.1": {`\-a, \-\-array=…`, `at most limits.array_tasks`, "Options that are refused:", `\-\-export\-file=…`},
		"srun.1":   {`\-l, \-\-label`, `\-\-x11[=…]`, "refused: displays are not forwarded", `\-G, \-\-gpus=…`},
		"salloc.1": {`\-\-no\-shell`, `\-t, \-\-time=…`},
		"squeue.1": {`\-\-start`}, "sstat.1": {"berth show JOB"},
	} {
		for _, want := range wants {
			if !strings.Contains(theirs[name], want) {
				t.Errorf("%s lacks %q:\n%s", name, want, theirs[name])
			}
		}
	}
}

// pagesIn are the manual pages of a folder; they use few requests of man's language.
func pagesIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	pages, request := map[string]string{}, regexp.MustCompile(`(?m)^[.'][^\n]*`)
	for _, p := range entries {
		data, err := os.ReadFile(filepath.Join(dir, p.Name()))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range request.FindAllString(string(data), -1) {
			if name, _, _ := strings.Cut(r, " "); !slices.Contains([]string{".TH", ".SH", ".nf", ".fi"}, name) {
				t.Errorf("%s: %q", p.Name(), r)
			}
		}
		pages[p.Name()] = string(data)
	}
	return pages
}

// TestLinks: make install links all names under which the binary is Slurm's,
// and nothing else.
func TestLinks(t *testing.T) {
	data, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^LINKS *:= (.*)$`).FindSubmatch(data)
	if m == nil {
		t.Fatal("the Makefile has no LINKS")
	}
	want := slices.Sorted(slices.Values(slurm.Commands()))
	if d := cmp.Diff(want, slices.Sorted(slices.Values(strings.Fields(string(m[1]))))); d != "" {
		t.Errorf("LINKS (-applets +Makefile):\n%s", d)
	}
}

// TestOneCommand: whatever another program has, berth has under the same words and
// the same summary, and starts that program for it.
func TestOneCommand(t *testing.T) {
	env := console.SystemEnv()
	env.Start()
	ours := frame.Tree(env, client.NewClient(env), cli.Program())
	known := map[string]int{}
	for program, p := range map[string]frame.Program{programs.Daemon: daemon.Program(), programs.Lab: lab.Program(), programs.Top: top.Program()} {
		var walk func(have, theirs *cobra.Command)
		walk = func(have, theirs *cobra.Command) {
			for _, x := range theirs.Commands() {
				if x.Name() == "version" || x.Name() == "help" {
					continue
				}
				i := slices.IndexFunc(have.Commands(), func(c *cobra.Command) bool { return c.Name() == x.Name() })
				switch {
				case i < 0:
					t.Errorf("berth has no %q, which %s has", x.CommandPath(), program)
				case frame.Awaits(have.Commands()[i]) == "":
					walk(have.Commands()[i], x) // each has some of its verbs
				default:
					stub := have.Commands()[i]
					known[program]++
					if got := frame.Awaits(stub); got != program {
						t.Errorf("berth %s is started in %s, and %s has it", stub.Name(), got, program)
					}
					if stub.Hidden != x.Hidden || !stub.Hidden && stub.Short != x.Short {
						t.Errorf("berth says of %s: %q (hidden: %t); %s: %q (%t)", stub.Name(), stub.Short, stub.Hidden, program, x.Short, x.Hidden)
					}
				}
			}
		}
		walk(ours, frame.Tree(env, client.NewClient(env), p))
	}
	stubs := 0
	var count func(*cobra.Command)
	count = func(c *cobra.Command) {
		if frame.Awaits(c) != "" {
			stubs++
		}
		for _, sub := range c.Commands() {
			count(sub)
		}
	}
	count(ours)
	if stubs != known[programs.Daemon]+known[programs.Lab]+known[programs.Top] {
		t.Errorf("berth starts other programs for %d commands, and they have %v of those", stubs, known)
	}
}
