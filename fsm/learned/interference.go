package learned

import (
	"bytes"
	"crypto/sha256"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/command"
	"github.com/berth-scheduler/berth/fsm/table"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

const maxInterference = 64 << 10

// Interference is what was learned of co-located jobs. The blob is opaque here and
// must not be modified. Version 0 is none.
type Interference struct {
	Version      uint64
	Blob, SHA256 []byte
	At           cluster.Time
	// Observations is how many it is based on, SampleSeq the newest sample at that
	// time.
	Observations uint32
	SampleSeq    uint64
}

// Interference returns what was learned of co-located jobs.
func (l *Store) Interference() Interference {
	m := l.interference
	return Interference{
		Version: m.GetVersion(), Blob: m.GetBlob(), SHA256: m.GetSha256(), At: cluster.Time(m.GetAtUs()),
		Observations: m.GetObservations(), SampleSeq: m.GetSampleSeq(),
	}
}

// installInterference puts a new interference model into use. Its content is the
// leader's to check, as with weights. It is derived from the samples alone, so that
// no older version is kept.
func (l *Store) installInterference(at command.Entry, c *logv1.InstallInterference) command.Result {
	sum := sha256.Sum256(c.Blob)
	switch {
	case l.pin != nil:
		return command.Refuse(cluster.CodeDenied, "version %d of the weights is pinned; nothing learned is taken until: berth model unpin", l.weights.GetVersion())
	case c.Version != l.interference.GetVersion()+1:
		return command.Refuse(cluster.CodeConflict, "interference of version %d cannot follow version %d", c.Version, l.interference.GetVersion())
	case len(c.Blob) == 0 || len(c.Blob) > maxInterference:
		return command.Refuse(cluster.CodeInvalid, "interference of %d bytes, 1 to %d are allowed", len(c.Blob), maxInterference)
	case !bytes.Equal(sum[:], c.Sha256):
		return command.Refuse(cluster.CodeInvalid, "interference does not match its checksum")
	}
	l.interference = &logv1.Interference{
		Version: c.Version, Blob: c.Blob, Sha256: c.Sha256, AtUs: int64(at.Now), Observations: c.Observations, SampleSeq: c.SampleSeq,
	}
	l.digests.interference.Touch(table.One{})
	return command.Result{}
}

// copyInterference drops fields that a newer version may have set.
func copyInterference(m *logv1.Interference) *logv1.Interference {
	return &logv1.Interference{
		Version: m.Version, Blob: m.Blob, Sha256: m.Sha256, AtUs: m.AtUs, Observations: m.Observations, SampleSeq: m.SampleSeq,
	}
}
