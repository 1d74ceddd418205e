// Package nvmltest builds a stand-in for the NVIDIA driver's library, so that
// tests go through dlopen and the real bindings on machines without a GPU. The
// directives of its script are listed at the top of testdata/fakenvml.c.
package nvmltest

import (
	_ "embed" // for the source of the library
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

// Driver is the age of the driver to play.
type Driver string

// The drivers to play.
const (
	Recent Driver = ""
	// Old lacks the second version of the memory call, utilization and lists
	// by process beyond the first version, PCI, power and compute capability.
	Old Driver = "-DOLD"
)

// Build compiles the library and returns its path. Without gcc the test is
// skipped, saying so. A process must stay with the first library it loads.
func Build(tb testing.TB, d Driver) string {
	tb.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		tb.Skip("SKIPPED: gcc is not installed, so the NVML bindings are NOT tested here")
	}
	dir := tb.TempDir()
	src, lib := filepath.Join(dir, "fakenvml.c"), filepath.Join(dir, "libnvidia-ml.so.1")
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
	return lib
}

// WriteScript replaces the script at path in one step.
func WriteScript(tb testing.TB, path, script string) {
	tb.Helper()
	if err := os.WriteFile(path+".new", []byte(script), 0o600); err != nil {
		tb.Fatalf("write script: %v", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		tb.Fatalf("write script: %v", err)
	}
}
