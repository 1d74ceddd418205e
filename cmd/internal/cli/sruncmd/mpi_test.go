package sruncmd_test

import (
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
)

// TestMPITypes: a program of several ranks is not run as several of one rank: what
// would start it is refused before anything is submitted, in Slurm's words.
func TestMPITypes(t *testing.T) {
	t.Parallel()
	const listed = "MPI plugin types are...\n\tnone\n"
	for name, tc := range map[string]struct {
		args      []string
		env       string
		code      int
		out, errs string
	}{
		"pmi2":                  {args: []string{"srun", "--mpi=pmi2", "-n4", "./ring"}, code: 1, errs: "srun: error: Invalid MPI type 'pmi2', --mpi=list for acceptable types\n"},
		"pmix":                  {args: []string{"srun", "--mpi", "pmix", "-n4", "./ring"}, code: 1, errs: "srun: error: Invalid MPI type 'pmix', --mpi=list for acceptable types\n"},
		"nothing":               {args: []string{"srun", "--mpi=", "./ring"}, code: 1, errs: "srun: error: Invalid MPI type ''"},
		"the variable":          {args: []string{"srun", "-n4", "./ring"}, env: "pmi2", code: 1, errs: "srun: error: Invalid MPI type 'pmi2'"},
		"list":                  {args: []string{"srun", "--mpi=list"}, out: listed},
		"list by the variable":  {args: []string{"srun", "-n1", "true"}, env: "list", out: listed},
		"none, without command": {args: []string{"srun", "--mpi=none"}, env: "pmi2", code: 1, errs: "srun: fatal: No command given to execute.\n"},
		"openmpi, the same":     {args: []string{"srun", "--mpi=openmpi"}, code: 1, errs: "srun: fatal: No command given to execute.\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, f := clitest.NewWorld(t), clitest.NewFake()
			w.Serve("/a", f)
			w.Vars["SLURM_MPI_TYPE"] = tc.env
			code := w.Run(tc.args...)
			if code != tc.code || w.Out.String() != tc.out || !strings.HasPrefix(w.Errs.String(), tc.errs) {
				t.Errorf("exit code %d\n%s%s", code, w.Out.String(), w.Errs.String())
			}
			if strings.Contains(w.Errs.String(), "Invalid MPI") && !strings.Contains(w.Errs.String(), "mpirun") {
				t.Errorf("says not what to do: %s", w.Errs.String())
			}
			if len(f.Requests) > 0 {
				t.Error("a job is submitted")
			}
		})
	}
}
