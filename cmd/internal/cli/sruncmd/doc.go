// Package sruncmd implements srun and salloc: steps inside jobs, and
// interactive allocations. Its messages and exit codes are those of Slurm
// 22.05.
package sruncmd

import (
	"fmt"

	"github.com/berth-scheduler/berth/cmd/internal/sbatch"
)

// slurmWords returns an error in the words of Slurm's programs.
func slurmWords(format string, args ...any) error {
	return sbatch.Message(fmt.Sprintf(format, args...))
}
