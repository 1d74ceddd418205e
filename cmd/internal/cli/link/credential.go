package link

import (
	"io"
	"os"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
)

// Credential reads a job's credential from its file, which goes with each
// request of a job: it makes the job's identity trusted beyond its node. If
// it cannot be read there is none: the coordinator refuses what needs it, and
// says what to do.
func Credential(path string) string {
	if path == "" {
		return ""
	}
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, cluster.MaxCredential+1))
	text := strings.TrimSpace(string(data))
	if _, perr := cluster.CredentialOf(text); err != nil || perr != nil {
		return "" // other files must not be read
	}
	return text
}
