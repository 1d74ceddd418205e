package cluster

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"strings"
)

// Secret is what the credentials of an attempt are made from. Coordinators alone
// have it; an attempt without one has no credentials. It prints as no more than
// that it is there.
type Secret string

const (
	// SecretBytes is how long a Secret is.
	SecretBytes = 16
	// MaxCredential bounds the bytes of a credential.
	MaxCredential = 128
	// CredentialVar is the variable that names a job the file with its credential.
	CredentialVar = "BERTH_CREDENTIAL" // #nosec G101 -- a name, and no secret
	// CredentialKey is the metadata in which requests carry it.
	CredentialKey = "berth-credential" // #nosec G101 -- a name, and no secret
)

// String implements fmt.Stringer and says nothing of the secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "secret"
}

// GoString implements fmt.GoStringer as String does.
func (s Secret) GoString() string { return fmt.Sprintf("%q", s.String()) }

// Credential is what the attempt of j shows on a node to be believed there: bound
// to job, attempt, owner and node. It is "" of an attempt that has no secret.
func (a *Attempt) Credential(j *Job, node NodeID) string {
	if a.Secret == "" {
		return ""
	}
	id := AttemptID{Job: j.ID, No: a.No}
	mac := hmac.New(sha256.New, []byte(a.Secret))
	fmt.Fprintf(mac, "berth credential 1\n%s\n%d\n%s", id, j.Owner.UID, node)
	return id.String() + "." + hex.EncodeToString(mac.Sum(nil))
}

// Holds reports whether credential is that of the live attempt of j for node,
// where its part must be live as well. It takes as long for any of the right
// length.
func (j *Job) Holds(credential string, node NodeID) bool {
	a := j.Live()
	if a == nil || a.Secret == "" {
		return false
	}
	rank := a.Rank(node)
	if rank < 0 || !a.PartLive(rank) {
		return false
	}
	return subtle.ConstantTimeCompare([]byte(credential), []byte(a.Credential(j, node))) == 1
}

// CredentialOf returns of which attempt a credential says to be. Text of another
// form is an error, which does not repeat it.
func CredentialOf(credential string) (AttemptID, error) {
	name, mac, _ := strings.Cut(credential, ".")
	id, err := ParseAttemptID(name)
	if sum, herr := hex.DecodeString(mac); len(credential) > MaxCredential || err != nil || herr != nil || len(sum) != sha256.Size {
		return AttemptID{}, Errorf(CodeInvalid, "it is no credential of a job")
	}
	return id, nil
}
