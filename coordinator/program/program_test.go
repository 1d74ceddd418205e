package program

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// script writes a program.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestProgram(t *testing.T) {
	t.Setenv("SECRET", "of the coordinator's")
	told := filepath.Join(t.TempDir(), "told")
	for name, c := range map[string]struct {
		text string
		want []string // in the error; none for no error
	}{
		"it works":                    {`echo "$# $1 ${SECRET-none} $(pwd)" > ` + told, nil},
		"it fails":                    {"echo 'no route\nto n1' >&2; exit 3", []string{"program: exit status 3: no route to n1"}},
		"it says nothing":             {"exit 4", []string{"program: exit status 4"}},
		"it says too much":            {"head -c 1000000 /dev/zero | tr '\\0' x; exit 1", []string{"exit status 1: xxx"}},
		"it leaves something running": {"sleep 2 & exit 0", nil},
	} {
		t.Run(name, func(t *testing.T) {
			err := Program{Path: script(t, c.text), Timeout: time.Minute}.Run(t.Context(), nil, "n1")
			if (err == nil) != (len(c.want) == 0) {
				t.Fatal(err)
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) || len(err.Error()) > 500 {
					t.Errorf("%v, want %q", err, w)
				}
			}
		})
	}
	if got, err := os.ReadFile(told); err != nil || string(got) != "1 n1 none /\n" {
		t.Errorf("it was told %q, %v", got, err)
	}
}

// TestProgramHangs: it is killed with what it started, when its time is over and when the
// leader is none any more.
func TestProgramHangs(t *testing.T) {
	t.Parallel()
	path := script(t, "sleep 300")
	err := Program{Path: path, Timeout: 50 * time.Millisecond}.Run(t.Context(), nil, "n1")
	if err == nil || !strings.Contains(err.Error(), "killed, as it took longer than 50ms") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (Program{Path: path, Timeout: time.Hour}).Run(ctx, nil, "n1"); err == nil {
		t.Error("it ran for a leader that is none")
	}
	if err := (Program{Path: "/nowhere/at-all", Timeout: time.Hour}).Run(t.Context(), nil, "n1"); err == nil {
		t.Error("there is none, and it worked")
	}
}
