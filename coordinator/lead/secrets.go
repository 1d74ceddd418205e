package lead

import (
	"crypto/rand"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/fsm"
)

// assignSecrets gives the attempts of starts the secrets of their credentials, if
// the agents of all their nodes hand credentials out.
func (p *planner) assignSecrets(starts []dispatch.Start) {
	if p.prop.Version() < fsm.CredentialVersion {
		return
	}
	for i := range starts {
		if st := &starts[i]; p.handOut(st) {
			var b [cluster.SecretBytes]byte
			rand.Read(b[:]) // never fails, see crypto/rand
			st.Secret = cluster.Secret(b[:])
		}
	}
}

func (p *planner) handOut(st *dispatch.Start) bool {
	for _, b := range st.Berths() {
		if n, ok := p.fsm.Node(b.Node); !ok || !n.Credentials {
			return false
		}
	}
	return true
}
