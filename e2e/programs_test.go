package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
)

// buildPrograms builds Berth's programs into a folder, as make build does. No test
// looks at debugging tables, and writing them takes the linker longest. Their version is
// the release alone, as of programs built of it.
func buildPrograms(dir string) error {
	for _, b := range []struct {
		env  string
		args []string
	}{
		{"CGO_ENABLED=0", []string{"-tags", "grpcnotrace", "../cmd/berth", "../cmd/berth-job", "../cmd/berth-top", "../cmd/berth-sbatch", "../cmd/berth-jq"}},
		{"", []string{"../cmd/berthd", "../cmd/berth-lab"}},
	} {
		build := exec.Command("go", append([]string{"build", "-buildvcs=false", "-ldflags=-s -w", "-o", dir + "/"}, b.args...)...)
		build.Stderr = os.Stderr
		if b.env != "" {
			build.Env = append(os.Environ(), b.env)
		}
		if err := build.Run(); err != nil {
			return err
		}
	}
	return nil
}

// appletOf is the program that a command of Slurm's is a link to, as make install has it.
func appletOf(berth, name string) string {
	if name == "sbatch" {
		return filepath.Join(filepath.Dir(berth), "berth-sbatch")
	}
	return berth
}
