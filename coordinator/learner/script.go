package learner

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/proto/conv/plainconv"
)

// How much of a script is unpacked, so that a kilobyte that unpacks to megabytes
// costs about as much as any other: that many bytes, and that many times its packed
// size. Scripts written by people pack less.
const (
	scriptBytes = 2 << 10
	scriptRatio = 8
)

// scriptOf returns what a batch script does, "" for none. Two scripts with the same
// name, as all have that sbatch reads from standard input, are two jobs.
func scriptOf(spec *cluster.Spec) string {
	_, packed := spec.Large()
	if len(packed) == 0 {
		return ""
	}
	return scriptText(packed)
}

// scriptText returns a packed script's lines that are no comments: one that asks
// for more time in its #SBATCH lines is still the same. One longer than is unpacked
// is identified by its whole packed form.
func scriptText(packed []byte) string {
	script, whole, err := plainconv.UnpackHead(packed, scriptBytes+scriptRatio*len(packed))
	if err != nil {
		return "" // its submitter, or its agent, gets an error
	}
	var b strings.Builder
	for line := range strings.Lines(string(script)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			b.WriteString(line)
			b.WriteByte('\n')
		}
	}
	if !whole {
		sum := sha256.Sum256(packed)
		b.WriteString(hex.EncodeToString(sum[:]))
	}
	return b.String()
}
