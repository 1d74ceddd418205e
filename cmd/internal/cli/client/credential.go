package client

import (
	"context"
	"io"
	"os"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
)

// credential goes with each request of a job, which is believed beyond its node for
// it; "" is that of whoever is in no job.
type credential string

// credentialIn reads a job's credential from its file. Without one that can be read
// there is none: what needs it is refused by the coordinator, with what to do.
func credentialIn(path string) credential {
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
	return credential(text)
}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (c credential) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	if c == "" {
		return nil, nil
	}
	return map[string]string{cluster.CredentialKey: string(c)}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials: a unix socket
// does not leave the machine.
func (credential) RequireTransportSecurity() bool { return false }
