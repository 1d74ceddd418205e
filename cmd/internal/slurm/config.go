package slurm

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Version is that of the Slurm whose commands are followed.
const Version = "22.05.8"

// Versioned is what --version says: two words, as Slurm's and its packages' do, of
// which scripts read the second.
const Versioned = "slurm-berth " + Version

// Setting is a line of scontrol show config.
type Setting struct{ Key, Value string }

// Config writes settings as scontrol show config does at a time.
func Config(w io.Writer, conf []Setting, now time.Time) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Configuration data as of %s\n", stamp(now, ""))
	for _, s := range conf {
		fmt.Fprintf(&b, "%-23s = %s\n", s.Key, orNull(s.Value))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
