package cluster

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits on what a user may ask for, checked by Spec.Check.
const (
	MaxNameLen    = 63
	MaxArgs       = 1024
	MaxArgBytes   = 32 << 10
	MaxEnv        = 256
	MaxEnvLine    = 4 << 10
	MaxPathLen    = 4096
	MaxGPUsPerJob = 16
	MaxMemMiB     = 8 << 20 // 8 TiB
	MaxFeatures   = 4 << 10
	// MaxScript bounds a batch script, MaxPackedScript what is stored of it.
	MaxScript       = 4 << 20
	MaxPackedScript = 512 << 10
	MaxTimeDays     = 30
)

// CheckName reports whether s may name a node, a coordinator or a cluster:
// 1–63 characters of a–z, 0–9, '.', '_' and '-', the first a letter or digit.
func CheckName(what, s string) error {
	if s == "" || len(s) > MaxNameLen {
		return Errorf(CodeInvalid, "%s %s: must have 1 to %d characters", what, QuoteShort(s), MaxNameLen)
	}
	for i, c := range []byte(s) {
		alnum := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || c != '.' && c != '_' && c != '-') {
			return Errorf(CodeInvalid, "%s %q: may hold a-z, 0-9, '.', '_' and '-' and must begin with a letter or digit", what, s)
		}
	}
	return nil
}

// CheckJobName reports whether s may name a job: 1–63 bytes of printable UTF-8
// without slash, and not beginning with '-' or '.'. The name becomes part of
// output paths and of listings on terminals.
func CheckJobName(s string) error {
	if s == "" || len(s) > MaxNameLen {
		return Errorf(CodeInvalid, "name %s: must have 1 to %d bytes", QuoteShort(s), MaxNameLen)
	}
	if s[0] == '-' || s[0] == '.' {
		return Errorf(CodeInvalid, "name %q: may not begin with '-' or '.'", s)
	}
	if !utf8.ValidString(s) {
		return Errorf(CodeInvalid, "name %q: is not UTF-8", s)
	}
	for _, r := range s {
		if r == '/' || !unicode.IsGraphic(r) {
			return Errorf(CodeInvalid, "name %q: may not hold %q; use printable characters without '/'", s, r)
		}
	}
	return nil
}

// QuoteShort quotes what a user sent, at most 32 bytes of it.
func QuoteShort(s string) string {
	if len(s) > 32 {
		return fmt.Sprintf("%q… (%d bytes)", s[:32], len(s))
	}
	return fmt.Sprintf("%q", s)
}

// CheckReservationName reports whether s may name one; the rules are those of
// partitions.
func CheckReservationName(s string) error {
	if err := CheckPartitionName(s); err != nil {
		return Errorf(CodeInvalid, "reservation %s", strings.TrimPrefix(err.Error(), "partition "))
	}
	return nil
}
