package link

import (
	"io"
	"os"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
)

// Credential reads a job's credential from its file, which goes with each request of
// a job: it is believed beyond its node for it. Without one that can be read
// there is none: what needs it is refused by the coordinator, with what to do.
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
		return "" // another file is nobody's business
	}
	return text
}
