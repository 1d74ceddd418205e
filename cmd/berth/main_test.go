package main

import (
	"bytes"
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cmd/internal/cli"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/slurmcmd"
)

var update = flag.Bool("update", false, "rewrite docs/reference.md")

// run runs a command of the whole program.
func run(t *testing.T, args ...string) string {
	t.Helper()
	env := console.SystemEnv()
	var out, errs bytes.Buffer
	env.Stdout, env.Stderr, env.IsTerminal = &out, &errs, false
	if code := cli.Main(args, env, commands()...); code != 0 {
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
	dir := t.TempDir()
	run(t, "reference", "--man", dir)
	pages, err := os.ReadDir(dir)
	if err != nil || len(pages) < 30 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	request := regexp.MustCompile(`(?m)^[.'][^\n]*`)
	for _, p := range pages {
		data, err := os.ReadFile(dir + "/" + p.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range request.FindAllString(string(data), -1) {
			if name, _, _ := strings.Cut(r, " "); !slices.Contains([]string{".TH", ".SH", ".nf", ".fi"}, name) {
				t.Errorf("%s: %q", p.Name(), r)
			}
		}
	}
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
	want := slices.Sorted(slices.Values(slurmcmd.Applets()))
	if d := cmp.Diff(want, slices.Sorted(slices.Values(strings.Fields(string(m[1]))))); d != "" {
		t.Errorf("LINKS (-applets +Makefile):\n%s", d)
	}
}
