// Package sruncmd is srun and salloc: steps inside of jobs, and allocations for
// people who sit at a terminal. Its words and exit codes are those of Slurm
// 22.05.
package sruncmd

import (
	"fmt"

	"github.com/berth-scheduler/berth/cmd/internal/sbatch"
)

// slurmWords is an error in the words of Slurm's programs.
func slurmWords(format string, args ...any) error {
	return sbatch.Message(fmt.Sprintf(format, args...))
}
