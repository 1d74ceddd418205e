// Package nvmltest builds a stand-in for the NVIDIA driver's library, so that
// tests go through dlopen and the real bindings on machines without a GPU. The
// directives of its script are listed at the top of testdata/fakenvml.c.
package nvmltest

import (
	_ "embed" // for the source of the library
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

//go:embed testdata/fakenvml.c
var source []byte

// ScriptEnv names the environment variable with the path of the script. It is
// read by C code: set it with t.Setenv or in a child's environment.
const ScriptEnv = "FAKE_NVML_SCRIPT"

// Driver is the age of the simulated driver.
type Driver string

// The drivers to simulate.
const (
	Recent Driver = ""
	// Old lacks the second version of the memory call, utilization and lists by process beyond
	// the first version, PCI, power and compute capability.
	Old Driver = "-DOLD"
)

// builtEnv names the environment variable with the directory of already compiled libraries,
// since compiling takes longer than most tests.
const builtEnv = "FAKE_NVML_BUILT"

// Main runs tests that share one compiled library of each kind with each other and with
// processes that they start; it returns the exit code.
func Main(m *testing.M) int {
	if os.Getenv(builtEnv) == "" {
		dir, err := os.MkdirTemp("", "fakenvml-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		if err := os.Setenv(builtEnv, dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return m.Run()
}

// Build compiles the library and returns the path of a copy for this test. Without gcc it skips
// the test with a message. A process must keep the first library that it loads.
func Build(tb testing.TB, d Driver) string {
	tb.Helper()
	lib := filepath.Join(tb.TempDir(), "libnvidia-ml.so.1")
	shared := filepath.Join(os.Getenv(builtEnv), "recent.so")
	if d != Recent {
		shared = filepath.Join(filepath.Dir(shared), "old.so")
	}
	if os.Getenv(builtEnv) == "" {
		compile(tb, d, lib)
		return lib
	}
	if _, err := os.Stat(shared); err != nil { // several at once write the same content
		compile(tb, d, lib)
		if err := errors.Join(os.Link(lib, lib+".done"), os.Rename(lib+".done", shared)); err != nil {
			tb.Fatalf("share the library: %v", err)
		}
		return lib
	}
	if err := os.Link(shared, lib); err != nil {
		tb.Fatalf("library: %v", err)
	}
	return lib
}

func compile(tb testing.TB, d Driver, lib string) {
	tb.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		tb.Skip("SKIPPED: gcc is not installed, so the NVML bindings are NOT tested here")
	}
	src := filepath.Join(filepath.Dir(lib), "fakenvml.c")
	if err := os.WriteFile(src, source, 0o600); err != nil {
		tb.Fatalf("write source: %v", err)
	}
	args := []string{"-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o", lib, src}
	if d != Recent {
		args = append(args, string(d))
	}
	if out, err := exec.CommandContext(tb.Context(), gcc, args...).CombinedOutput(); err != nil {
		tb.Fatalf("compile fake NVML: %v\n%s", err, out)
	}
}

// WriteScript replaces the script at path atomically.
func WriteScript(tb testing.TB, path, script string) {
	tb.Helper()
	if err := os.WriteFile(path+".new", []byte(script), 0o600); err != nil {
		tb.Fatalf("write script: %v", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		tb.Fatalf("write script: %v", err)
	}
}
