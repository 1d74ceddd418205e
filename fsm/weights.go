package fsm

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// Where weights come from.
const (
	WeightsLearned  = "learned"
	WeightsImport   = "import"
	WeightsRollback = "rollback"
)

const (
	maxWeights  = 256 << 10
	keptWeights = 8 // versions, the one in use included
	// MaxWeightsReason is how many bytes of a reason are taken.
	MaxWeightsReason = 256
)

// WeightsVersion is one version of the predictor's weights. The blob is
// opaque here, and not to be changed.
type WeightsVersion struct {
	Version uint64
	Blob    []byte
	SHA256  []byte
	At      cluster.Time
	// Source is one of the Weights constants, empty for those of old logs.
	Source string
	By     cluster.UID
	// RolledBackTo is the version that a rollback put in use again.
	RolledBackTo uint64
	// Trained and Tested count samples; the errors are medians on those that
	// were tested, before and after, in millionths.
	Trained, Tested           uint32
	ErrBeforePPM, ErrAfterPPM int64
	Reason                    string
	// SampleSeq is the newest sample when they were put in use.
	SampleSeq uint64
}

// WeightsState is which weights there are.
type WeightsState struct {
	// Versions are those that are kept, the one in use first; none when
	// nothing was ever published.
	Versions []WeightsVersion
	// Pinned tells that nothing learned is taken; PinnedBy and PinnedAt who
	// wanted that, and since when.
	Pinned   bool
	PinnedBy cluster.UID
	PinnedAt cluster.Time
}

// WeightsState returns the versions of the weights and whether one is pinned.
func (f *FSM) WeightsState() WeightsState {
	return read(f, func(s *State) WeightsState {
		ws := WeightsState{Pinned: s.pin != nil, PinnedBy: cluster.UID(s.pin.GetBy()), PinnedAt: cluster.Time(s.pin.GetAtUs())}
		if s.weights == nil {
			return ws
		}
		ws.Versions = append(ws.Versions, weightsVersion(s.weights))
		for _, w := range slices.Backward(s.kept) {
			ws.Versions = append(ws.Versions, weightsVersion(w))
		}
		return ws
	})
}

func weightsVersion(w *logv1.Weights) WeightsVersion {
	o := w.GetOrigin()
	return WeightsVersion{
		Version: w.Version, Blob: w.Blob, SHA256: w.Sha256, At: cluster.Time(w.AtUs), Source: o.GetSource(), By: cluster.UID(o.GetBy()),
		RolledBackTo: o.GetRolledBackTo(), Trained: o.GetTrained(), Tested: o.GetTested(),
		ErrBeforePPM: o.GetChampionErrPpm(), ErrAfterPPM: o.GetChallengerErrPpm(), Reason: o.GetReason(), SampleSeq: o.GetSampleSeq(),
	}
}

// publish replaces the predictor's weights by their next version.
func (s *State) publish(c *logv1.PublishWeights) Result {
	if err := s.checkNext(c.Version, c.Blob, c.Sha256); err != nil {
		return Result{Err: err}
	}
	s.weights = &logv1.Weights{Version: c.Version, Blob: c.Blob, Sha256: c.Sha256, AtUs: int64(s.now)}
	s.hash.rest.touch(entity{kind: kindWeights})
	return Result{}
}

func (s *State) checkNext(version uint64, blob, sha []byte) *cluster.Error {
	sum := sha256.Sum256(blob)
	switch {
	case version != s.weights.GetVersion()+1:
		return cluster.Errorf(cluster.CodeConflict, "weights of version %d cannot follow version %d", version, s.weights.GetVersion())
	case len(blob) == 0 || len(blob) > maxWeights:
		return cluster.Errorf(cluster.CodeInvalid, "weights of %d bytes, 1 to %d are allowed", len(blob), maxWeights)
	case !bytes.Equal(sum[:], sha):
		return cluster.Errorf(cluster.CodeInvalid, "weights do not match their checksum")
	}
	return nil
}

// install puts weights in use as the next version. What is in them is the
// leader's to check: a rule that changes with the predictor must not decide
// what replicas store.
func (s *State) install(c *logv1.InstallWeights) Result {
	o := c.GetOrigin()
	switch {
	case o.GetSource() != WeightsLearned && o.GetSource() != WeightsImport:
		return refuse(cluster.CodeInvalid, "weights from %.20q: must be %s or %s", o.GetSource(), WeightsLearned, WeightsImport)
	case o.ChampionErrPpm < 0 || o.ChallengerErrPpm < 0 || len(o.Reason) > MaxWeightsReason:
		return refuse(cluster.CodeInvalid, "weights with a negative error, or a reason of %d bytes, at most %d are allowed", len(o.Reason), MaxWeightsReason)
	case o.Source == WeightsLearned && s.pin != nil:
		return refuse(cluster.CodeDenied, "version %d is pinned; nothing learned replaces it until: berth model unpin", s.weights.GetVersion())
	}
	if err := s.checkNext(c.Version, c.Blob, c.Sha256); err != nil {
		return Result{Err: err}
	}
	seq := o.SampleSeq
	if o.Source != WeightsLearned {
		seq = s.sampleNo
	}
	s.putWeights(c.Blob, c.Sha256, &logv1.WeightsOrigin{
		Source: o.Source, By: o.By, Trained: o.Trained, Tested: o.Tested,
		ChampionErrPpm: o.ChampionErrPpm, ChallengerErrPpm: o.ChallengerErrPpm, Reason: o.Reason, SampleSeq: seq,
	})
	return Result{}
}

// rollback puts a kept version in use again. It becomes the next version, so
// that versions only rise.
func (s *State) rollback(c *logv1.RollbackWeights) Result {
	i := slices.IndexFunc(s.kept, func(w *logv1.Weights) bool { return w.Version == c.To })
	switch {
	case c.Version != s.weights.GetVersion()+1:
		return refuse(cluster.CodeConflict, "version %d is in use by now; look again, then roll back", s.weights.GetVersion())
	case s.weights != nil && c.To == s.weights.Version:
		return refuse(cluster.CodeConflict, "version %d is in use already", c.To)
	case i < 0:
		return refuse(cluster.CodeNotFound, "version %d is not kept; see: berth model list", c.To)
	}
	w := s.kept[i]
	o := w.GetOrigin()
	s.putWeights(w.Blob, w.Sha256, &logv1.WeightsOrigin{
		Source: WeightsRollback, By: c.By, RolledBackTo: c.To, Trained: o.GetTrained(), Tested: o.GetTested(),
		ChampionErrPpm: o.GetChampionErrPpm(), ChallengerErrPpm: o.GetChallengerErrPpm(), SampleSeq: s.sampleNo,
	})
	return Result{}
}

// putWeights puts weights in use and keeps those that were, but for the
// oldest ones.
func (s *State) putWeights(blob, sha []byte, o *logv1.WeightsOrigin) {
	version := s.weights.GetVersion() + 1
	if s.weights != nil {
		s.keep(s.weights)
	}
	for len(s.kept) > keptWeights-1 {
		s.hash.rest.touch(keptEntity(s.kept[0].Version))
		s.kept = slices.Clone(s.kept[1:])
	}
	s.weights = &logv1.Weights{Version: version, Blob: blob, Sha256: sha, AtUs: int64(s.now), Origin: o}
	s.hash.rest.touch(entity{kind: kindWeights})
}

// keep appends a version to the kept ones; views may hold the slice as it was.
func (s *State) keep(w *logv1.Weights) {
	s.kept = append(slices.Clip(s.kept), w)
	s.hash.rest.touch(keptEntity(w.Version))
}

func keptEntity(version uint64) entity {
	return entity{kindKept, strconv.FormatUint(version, 10)}
}

// keptRecord returns a kept version by its key, or nil.
func (s *State) keptRecord(key string) *logv1.Weights {
	for _, w := range s.kept {
		if keptEntity(w.Version).key == key {
			return w
		}
	}
	return nil
}

// pinWeights keeps the learner from publishing, or lets it again.
func (s *State) pinWeights(c *logv1.PinWeights) Result {
	if c.Pinned && c.Version != s.weights.GetVersion() {
		return refuse(cluster.CodeConflict, "version %d is in use by now, and not %d; look again, then pin", s.weights.GetVersion(), c.Version)
	}
	switch {
	case !c.Pinned:
		s.pin = nil
	case s.pin == nil:
		s.pin = &logv1.WeightsPin{AtUs: int64(s.now), By: c.By}
	}
	s.hash.rest.touch(entity{kind: kindPin})
	return Result{}
}

// copyWeights leaves behind what a newer version may have put beside what
// this one knows.
func copyWeights(w *logv1.Weights) *logv1.Weights {
	out := &logv1.Weights{Version: w.Version, Blob: w.Blob, Sha256: w.Sha256, AtUs: w.AtUs}
	if o := w.Origin; o != nil {
		out.Origin = &logv1.WeightsOrigin{
			Source: o.Source, By: o.By, RolledBackTo: o.RolledBackTo, Trained: o.Trained, Tested: o.Tested,
			ChampionErrPpm: o.ChampionErrPpm, ChallengerErrPpm: o.ChallengerErrPpm, Reason: o.Reason, SampleSeq: o.SampleSeq,
		}
	}
	return out
}

// checkKept makes sure that restored versions rise up to the one in use.
func (s *State) checkKept() error {
	last := uint64(0)
	for _, w := range s.kept {
		if w.Version <= last || w.Version >= s.weights.GetVersion() {
			return fmt.Errorf("weights of version %d are kept, out of order; version %d is in use", w.Version, s.weights.GetVersion())
		}
		last = w.Version
	}
	if len(s.kept) > keptWeights-1 {
		return fmt.Errorf("%d old versions of the weights, at most %d are kept", len(s.kept), keptWeights-1)
	}
	return nil
}
