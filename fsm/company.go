package fsm

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// MaxCompany bounds Sample.Company: with the job itself it is the largest set
// that interference is predicted for.
const MaxCompany = 7

// companyOf says with whom an attempt that has just ended shared its GPUs, and
// how long: nobody when one of them is not known any more, since the others
// would then be blamed for what it did.
func (s *State) companyOf(a *cluster.Attempt) []Company {
	if len(a.Neighbours) == 0 || len(a.Neighbours) >= cluster.MaxNeighbours {
		return nil
	}
	began := max(a.Started, a.Placed)
	var out []Company
	for _, id := range a.Neighbours {
		j := s.jobs.get(id)
		if j == nil {
			return nil
		}
		for i := range j.Attempts {
			b := &j.Attempts[i]
			if !sharesGPU(a, b) {
				continue
			}
			to := a.Ended
			if b.State.Terminal() {
				to = min(to, b.Ended)
			}
			if overlap := to.Sub(max(began, b.Started, b.Placed)); overlap > 0 {
				k := slices.IndexFunc(out, func(c Company) bool { return c.Signature == j.Spec.Signature })
				if k < 0 {
					k = len(out)
					out = append(out, Company{Signature: j.Spec.Signature})
				}
				out[k].Overlap += overlap
				out[k].Milli = b.Estimate.Milli
			}
		}
	}
	slices.SortFunc(out, func(a, b Company) int {
		return cmp.Or(cmp.Compare(b.Overlap, a.Overlap), strings.Compare(a.Signature, b.Signature))
	})
	return slices.Clip(out[:min(len(out), MaxCompany)])
}

func sharesGPU(a, b *cluster.Attempt) bool {
	for _, x := range a.Berths() {
		for _, y := range b.Berths() {
			if x.Node == y.Node && slices.ContainsFunc(x.GPUs, func(g cluster.GPUShare) bool {
				return slices.ContainsFunc(y.GPUs, func(h cluster.GPUShare) bool { return g.GPU == h.GPU })
			}) {
				return true
			}
		}
	}
	return false
}

const maxInterference = 64 << 10

// Interference is what was learned of jobs that share a GPU. The blob is
// opaque here, and not to be changed. Version 0 is none.
type Interference struct {
	Version      uint64
	Blob, SHA256 []byte
	At           cluster.Time
	// Observations are those behind it, SampleSeq the newest sample then.
	Observations uint32
	SampleSeq    uint64
}

// Interference returns what was learned of jobs that share a GPU.
func (f *FSM) Interference() Interference {
	return read(f, func(s *State) Interference {
		m := s.company
		return Interference{
			Version: m.GetVersion(), Blob: m.GetBlob(), SHA256: m.GetSha256(), At: cluster.Time(m.GetAtUs()),
			Observations: m.GetObservations(), SampleSeq: m.GetSampleSeq(),
		}
	})
}

// installInterference puts what was learned of sharing in use. What is in it
// is the leader's to check, as with weights. It is made of the samples alone,
// so that no older version is kept.
func (s *State) installInterference(c *logv1.InstallInterference) Result {
	sum := sha256.Sum256(c.Blob)
	switch {
	case s.pin != nil:
		return refuse(cluster.CodeDenied, "version %d of the weights is pinned; nothing learned is taken until: berth model unpin", s.weights.GetVersion())
	case c.Version != s.company.GetVersion()+1:
		return refuse(cluster.CodeConflict, "interference of version %d cannot follow version %d", c.Version, s.company.GetVersion())
	case len(c.Blob) == 0 || len(c.Blob) > maxInterference:
		return refuse(cluster.CodeInvalid, "interference of %d bytes, 1 to %d are allowed", len(c.Blob), maxInterference)
	case !bytes.Equal(sum[:], c.Sha256):
		return refuse(cluster.CodeInvalid, "interference does not match its checksum")
	}
	s.company = &logv1.Interference{
		Version: c.Version, Blob: c.Blob, Sha256: c.Sha256, AtUs: int64(s.now), Observations: c.Observations, SampleSeq: c.SampleSeq,
	}
	s.hash.rest.touch(entity{kind: kindInterference})
	return Result{}
}

// copyInterference leaves behind what a newer version may have put beside
// what this one knows.
func copyInterference(m *logv1.Interference) *logv1.Interference {
	return &logv1.Interference{
		Version: m.Version, Blob: m.Blob, Sha256: m.Sha256, AtUs: m.AtUs, Observations: m.Observations, SampleSeq: m.SampleSeq,
	}
}
