package slurm

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/cmd/internal/slurm/text"
)

// Seff prints what a job used of what it had, as seff of Slurm's
// contributions does. The job is one of sacct's, with measurements; GPUs
// follow in lines that seff does not have.
func Seff(w io.Writer, j *Job) error {
	state := j.State
	if !j.waiting() && j.Code != "R" && j.Code != "CF" {
		code, _, _ := strings.Cut(j.exits(), ":")
		state = fmt.Sprintf("%s (exit code %s)", j.State, code)
	}
	out := fmt.Sprintf("Job ID: %d\n", j.ID)
	if j.ArrayID != 0 {
		out += "Array Job ID: " + j.Array + "\n"
	}
	out += fmt.Sprintf("Cluster: %s\nUser/Group: %s/%s\nState: %s\n", j.Cluster, j.User, j.Group, state)
	if j.CPUs <= 1 {
		out += "Cores: 1\n"
	} else {
		out += fmt.Sprintf("Nodes: %d\nCores per node: %d\n", j.Nodes, j.CPUs/int64(max(1, j.Nodes)))
	}
	if j.waiting() {
		_, err := io.WriteString(w, out+"Efficiency not available for jobs in the PENDING state.\n")
		return err
	}
	whole := j.Ran.Truncate(time.Second) * time.Duration(max(1, j.CPUs))
	out += fmt.Sprintf("CPU Utilized: %s\nCPU Efficiency: %.2f%% of %s core-walltime\nJob Wall-clock time: %s\n",
		text.Clock(j.CPUUsed.Round(time.Second)), percentOf(j.CPUUsed.Seconds(), whole.Seconds()), text.Clock(whole), text.Clock(j.Ran))
	out += fmt.Sprintf("Memory Utilized: %s\nMemory Efficiency: %.2f%% of %s (%s/node)\n",
		bytesOf(j.MaxRSSMiB), percentOf(float64(j.MaxRSSMiB), float64(j.MemUsedMiB)), bytesOf(j.MemUsedMiB), bytesOf(j.MemUsedMiB/int64(max(1, j.Nodes))))
	if j.GPUs > 0 {
		out += fmt.Sprintf("GPUs: %d\nGPU Efficiency: %.2f%%\nGPU Memory Utilized: %s\n", j.GPUs, float64(j.GPUUtilMilli)/10, bytesOf(j.GPUMemMiB))
	}
	if j.Code == "R" {
		out += "WARNING: Efficiency statistics may be misleading for RUNNING jobs.\n"
	}
	_, err := io.WriteString(w, out)
	return err
}

// percentOf returns 0 if whole is 0.
func percentOf(part, whole float64) float64 {
	if whole == 0 {
		return 0
	}
	return 100 * part / whole
}

// bytesOf formats an amount of memory as seff writes it: 0.00 MB, 1.50 GB.
func bytesOf(mib int64) string {
	if mib <= 0 {
		return "0.00 MB"
	}
	unit := min(int(math.Log(float64(mib))/math.Log(1024)+1e-9), 3)
	return fmt.Sprintf("%.2f %cB", float64(mib)/math.Pow(1024, float64(unit)), "MGTP"[unit])
}
