package tlsconf

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"strings"
)

const tokenPrefix = "berth-join-v1" // #nosec G101 -- what every token begins with, no secret

// ErrBadToken is matched by ParseToken's errors.
var ErrBadToken = errors.New("bad join token")

// tokenEncoding is strict: one token has one text form.
var tokenEncoding = base64.RawURLEncoding.Strict()

// Token lets one daemon join once. It carries the hash of the CA's
// certificate, so that the joining side knows to whom it reveals the
// secret.
type Token struct {
	CAHash [32]byte
	Secret [32]byte
}

// NewToken returns a token with 256 random bits for the cluster of ca, and
// the hash under which the cluster stores it.
func NewToken(ca *CA) (Token, [32]byte, error) {
	t := Token{CAHash: ca.Hash()}
	if _, err := rand.Read(t.Secret[:]); err != nil {
		return Token{}, [32]byte{}, fmt.Errorf("make token: %w", err)
	}
	return t, t.Hash(), nil
}

// Hash returns the SHA-256 of the secret. The cluster stores it instead of
// the secret, so that a stolen log or backup lets nobody join.
func (t Token) Hash() [32]byte { return sha256.Sum256(t.Secret[:]) }

// String returns berth-join-v1.<CA's SHA-256>.<secret>, both in unpadded URL
// base64. It is a secret: never log it.
func (t Token) String() string {
	return tokenPrefix + "." + tokenEncoding.EncodeToString(t.CAHash[:]) + "." + t.SecretText()
}

// SecretText returns the secret as a join request carries it.
func (t Token) SecretText() string { return tokenEncoding.EncodeToString(t.Secret[:]) }

// LogValue implements slog.LogValuer: a log shows that there was a token, not
// which.
func (t Token) LogValue() slog.Value { return slog.StringValue(tokenPrefix + ".…") }

// ParseToken parses what Token.String wrote. Surrounding white space, as left
// by copying from a terminal, is ignored. Errors match ErrBadToken and never
// repeat the secret.
func ParseToken(s string) (Token, error) {
	var t Token
	parts := strings.Split(strings.TrimSpace(s), ".")
	if parts[0] != tokenPrefix {
		return t, fmt.Errorf("%w: it does not begin with %s.; copy the whole line that berth token create printed", ErrBadToken, tokenPrefix)
	}
	if len(parts) != 3 {
		return t, fmt.Errorf("%w: it has %d parts between dots, want 3; a piece is missing or added", ErrBadToken, len(parts))
	}
	if err := decode32(&t.CAHash, parts[1]); err != nil {
		return Token{}, fmt.Errorf("%w: CA hash (second part) %w", ErrBadToken, err)
	}
	if err := decode32(&t.Secret, parts[2]); err != nil {
		return Token{}, fmt.Errorf("%w: secret (third part) %w", ErrBadToken, err)
	}
	return t, nil
}

// HashSecret returns the hash of a secret in the form of SecretText.
func HashSecret(text string) ([32]byte, error) {
	var secret [32]byte
	if err := decode32(&secret, text); err != nil {
		return secret, fmt.Errorf("%w: secret %w", ErrBadToken, err)
	}
	return sha256.Sum256(secret[:]), nil
}

// SameHash compares two hashes in constant time.
func SameHash(a, b [32]byte) bool { return subtle.ConstantTimeCompare(a[:], b[:]) == 1 }

func decode32(dst *[32]byte, s string) error {
	if n := len(s); n != tokenEncoding.EncodedLen(len(dst)) {
		return fmt.Errorf("has %d characters, want %d", n, tokenEncoding.EncodedLen(len(dst)))
	}
	raw, err := tokenEncoding.DecodeString(s)
	// The decoder skips line breaks, which would give one token many forms.
	if err != nil || len(raw) != len(dst) {
		return errors.New("has a character that is not of A-Z a-z 0-9 - _, or was mistyped")
	}
	copy(dst[:], raw)
	return nil
}
