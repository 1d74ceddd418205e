package slurm

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/cmd/internal/slurm/text"
)

// Version is the version of Slurm whose commands Berth follows.
const Version = "22.05.8"

// Versioned is what --version prints: two words, as from Slurm and its
// packages; scripts read the second.
const Versioned = "slurm-berth " + Version

// Commands returns the names of the Slurm commands that Berth provides,
// through links to its program.
func Commands() []string {
	return []string{"sbatch", "squeue", "scancel", "sinfo", "scontrol", "sacct", "seff", "sshare", "srun", "salloc",
		"sacctmgr", "sattach", "sbcast", "scrontab", "sdiag", "sgather", "sprio", "sreport", "sstat", "strigger"}
}

// Setting is a line of scontrol show config.
type Setting struct{ Key, Value string }

// Config writes settings as scontrol show config does at the time now.
func Config(w io.Writer, conf []Setting, now time.Time) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Configuration data as of %s\n", text.Stamp(now, ""))
	for _, s := range conf {
		fmt.Fprintf(&b, "%-23s = %s\n", s.Key, orNull(s.Value))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
