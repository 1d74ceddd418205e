package cluster

import (
	"crypto/sha256"
	"encoding/binary"
)

// BulkFrom is the size in bytes from which a job's environment and script are
// stored apart from its spec; see Bulk.
const BulkFrom = 16 << 10

// Bulk is the large and seldom needed part of a spec, its environment and batch
// script, stored outside of memory. It never changes, and equal ones may be shared.
// It is safe for concurrent use.
type Bulk interface {
	// Sum returns the hash that BulkSum computes.
	Sum() [sha256.Size]byte
	// Bytes returns the combined length of environment and script.
	Bytes() int64
	// Scripted reports whether there is a script.
	Scripted() bool
	// Load reads both. A process that cannot read them does not know its state and
	// exits.
	Load() (env []string, script []byte)
}

// heldBulk is a Bulk in memory.
type heldBulk struct {
	sum    [sha256.Size]byte
	env    []string
	script []byte
}

// HoldBulk returns a Bulk that stays in memory, for use where there is no store.
// Neither part may change afterwards.
func HoldBulk(env []string, script []byte) Bulk {
	return &heldBulk{sum: BulkSum(env, script), env: env, script: script}
}

func (b *heldBulk) Sum() [sha256.Size]byte   { return b.sum }
func (b *heldBulk) Bytes() int64             { return bulkBytes(b.env, b.script) }
func (b *heldBulk) Scripted() bool           { return len(b.script) > 0 }
func (b *heldBulk) Load() ([]string, []byte) { return b.env, b.script }

// Large returns the environment and the packed script, wherever they are stored.
func (s *Spec) Large() (env []string, script []byte) {
	if s.Bulk != nil {
		return s.Bulk.Load()
	}
	return s.Env, s.Script
}

// Scripted reports whether the job is a batch script.
func (s *Spec) Scripted() bool {
	if s.Bulk != nil {
		return s.Bulk.Scripted()
	}
	return len(s.Script) > 0
}

// Lean returns the spec without environment and script, which is s itself if it has
// neither.
func (s *Spec) Lean() *Spec {
	if s.Env == nil && s.Script == nil && s.Bulk == nil {
		return s
	}
	lean := *s
	lean.Env, lean.Script, lean.Bulk = nil, nil, nil
	return &lean
}

// Weight returns the size of a spec in bytes, and separately that of its
// environment and script if they are large enough to be stored apart.
func (s *Spec) Weight() (own, bulk int64) {
	n := len(s.Name) + len(s.Dir) + len(s.Image) + len(s.Stdin) + len(s.Stdout) + len(s.Stderr) + len(s.Comment) + len(s.Features) + s.Study.Bytes() + s.Service.Bytes()
	for _, a := range s.Command {
		n += len(a)
	}
	own = int64(n)
	if s.Bulk != nil {
		return own, s.Bulk.Bytes()
	}
	if bulk = bulkBytes(s.Env, s.Script); bulk < BulkFrom {
		return own + bulk, 0
	}
	return own, bulk
}

func bulkBytes(env []string, script []byte) int64 {
	n := len(script)
	for _, e := range env {
		n += len(e)
	}
	return int64(n)
}

// EncodeBulk encodes an environment and a script as one: the number of lines, each
// line prefixed with its length, and the script.
func EncodeBulk(env []string, script []byte) []byte {
	b := make([]byte, 0, bulkBytes(env, script)+int64(3*len(env)+10)) // a length below 2 MiB has three bytes
	b = binary.AppendUvarint(b, uint64(len(env)))
	for _, e := range env {
		b = binary.AppendUvarint(b, uint64(len(e)))
		b = append(b, e...)
	}
	return append(b, script...)
}

// BulkSum returns the SHA-256 of EncodeBulk's result.
func BulkSum(env []string, script []byte) [sha256.Size]byte {
	return sha256.Sum256(EncodeBulk(env, script))
}

// ParseBulk parses the result of EncodeBulk; ok is false for anything else. The
// script aliases b.
func ParseBulk(b []byte) (env []string, script []byte, ok bool) {
	n, k := binary.Uvarint(b)
	if k <= 0 || n > uint64(len(b)) {
		return nil, nil, false
	}
	b = b[k:]
	if n > 0 {
		env = make([]string, n)
	}
	for i := range env {
		n, k := binary.Uvarint(b)
		if k <= 0 || n > uint64(len(b)-k) {
			return nil, nil, false
		}
		env[i] = string(b[k : k+int(n)])
		b = b[k+int(n):]
	}
	if len(b) == 0 {
		return env, nil, true
	}
	return env, b, true
}
