package console

import (
	"fmt"
	"strings"
)

// DidYouMean returns "; did you mean …?" for the nearest of known, or "".
func DidYouMean(typed string, known []string) string {
	if n := nearest(typed, known); n != "" {
		return fmt.Sprintf("; did you mean %q?", n)
	}
	return ""
}

// nearest returns the name that typed most likely stands for, or "": one that
// begins with it, or differs in at most a third of its letters, rounded up.
// Slurm's names for the same thing also count as near.
func nearest(typed string, known []string) string {
	typed = strings.ToLower(typed)
	if len(typed) > 40 || typed == "" {
		return ""
	}
	synonyms := map[string]string{
		"qsub": "submit", "qstat": "queue", "qdel": "cancel", "sbatch": "submit", "run": "submit", "squeue": "queue", "ls": "queue", "list": "queue", "ps": "queue",
		"scancel": "cancel", "kill": "cancel", "sinfo": "node", "nodes": "node", "jobs": "queue", "create": "add", "new": "add", "delete": "remove",
		"log": "logs", "describe": "show", "info": "show", "gres": "gpus", "ngpus": "gpus", "memory": "mem",
		"cpus-per-task": "cpus", "job-name": "name", "dir": "chdir", "workdir": "chdir", "stdout": "output",
		"stderr": "error", "stdin": "input", "time-limit": "time", "time_limit": "time", "limit": "time",
		"environment": "env", "cmd": "command", "args": "command", "vram": "gpu_mem", "gpu-memory": "gpu-mem",
		"gpu_memory": "gpu_mem", "help": "--help",
	}
	best, least := "", 1+100*max(1, (len(typed)+1)/3)
	for _, k := range known {
		if synonyms[typed] == k {
			return k
		}
		d := 100 * distance(typed, strings.ToLower(k))
		if len(typed) >= 3 && strings.HasPrefix(k, typed) { // nearer than any other word
			d = min(d, 50+min(49, len(k)-len(typed)))
		}
		switch {
		case d < least:
			best, least = k, d
		case d == least && d > 0 && len(typed) < 5:
			best = "" // ambiguous: fp12 is as near to fp16 as to fp32
		}
	}
	return best
}

// distance counts the insertions, deletions, substitutions and swaps of
// neighbours that turn a into b (optimal string alignment).
func distance(a, b string) int {
	prev2, prev, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], prev2[j-2]+1)
			}
		}
		prev2, prev, row = prev, row, prev2
	}
	return prev[len(b)]
}
