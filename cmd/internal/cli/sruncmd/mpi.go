package sruncmd

import (
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
)

// mpiTypes is the output of srun --mpi=list: ranks are started here, and
// nothing serves PMI to them.
const mpiTypes = "MPI plugin types are...\n\tnone\n"

// mpiWay says what to do instead of --mpi.
const mpiWay = "srun starts MPI programs without PMI, so that each would run as a single rank; in the job, start them with mpirun or mpiexec, which use srun"

// mpiType checks --mpi, or the variable in its place. It reports done if the
// types were requested. A program of several ranks started without what it
// needs would silently run as many programs of one rank.
func mpiType(e *console.Env, o *options) (done bool, err error) {
	name, given := o.values["mpi"]
	if !given {
		name = e.Getenv("SLURM_MPI_TYPE")
		given = name != ""
	}
	switch {
	case !given, name == "none", name == "openmpi": // Open MPI's own launcher, without PMI
		return false, nil
	case name == "list":
		e.Printf("%s", mpiTypes)
		return true, nil
	}
	return false, slurmWords("Invalid MPI type '%s', --mpi=list for acceptable types\n%s", console.Escape(name), mpiWay)
}
