package learned

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/command"
	"github.com/berth-scheduler/berth/fsm/table"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// The origins of weights.
const (
	WeightsLearned  = "learned"
	WeightsImport   = "import"
	WeightsRollback = "rollback"
)

const (
	maxWeights  = 256 << 10
	keptWeights = 8 // versions, including the one in use
	// MaxWeightsReason is how many bytes of a reason are stored.
	MaxWeightsReason = 256
)

// WeightsVersion is one version of the predictor's weights. The blob is opaque here
// and must not be modified.
type WeightsVersion struct {
	Version uint64
	Blob    []byte
	SHA256  []byte
	At      cluster.Time
	// Source is one of the Weights constants, empty in old logs.
	Source string
	By     cluster.UID
	// RolledBackTo is the version that a rollback put back into use.
	RolledBackTo uint64
	// Trained and Tested count samples; the errors are medians over the tested
	// ones, before and after, in millionths.
	Trained, Tested           uint32
	ErrBeforePPM, ErrAfterPPM int64
	Reason                    string
	// SampleSeq is the newest sample when they were put into use.
	SampleSeq uint64
}

// WeightsState lists the available weights.
type WeightsState struct {
	// Versions are the kept ones, the one in use first; empty if nothing was ever
	// published.
	Versions []WeightsVersion
	// Pinned means that learned weights are not adopted; PinnedBy and PinnedAt say
	// who pinned them, and when.
	Pinned   bool
	PinnedBy cluster.UID
	PinnedAt cluster.Time
}

// Weights returns the versions of the weights and whether one is pinned.
func (l *Store) Weights() WeightsState {
	ws := WeightsState{Pinned: l.pin != nil, PinnedBy: cluster.UID(l.pin.GetBy()), PinnedAt: cluster.Time(l.pin.GetAtUs())}
	if l.weights == nil {
		return ws
	}
	ws.Versions = append(ws.Versions, weightsVersion(l.weights))
	for _, w := range slices.Backward(l.kept) {
		ws.Versions = append(ws.Versions, weightsVersion(w))
	}
	return ws
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
func (l *Store) publish(at command.Entry, c *logv1.PublishWeights) command.Result {
	if err := l.checkNext(c.Version, c.Blob, c.Sha256); err != nil {
		return command.Result{Err: err}
	}
	l.weights = &logv1.Weights{Version: c.Version, Blob: c.Blob, Sha256: c.Sha256, AtUs: int64(at.Now)}
	l.digests.weights.Touch(table.One{})
	return command.Result{}
}

func (l *Store) checkNext(version uint64, blob, sha []byte) *cluster.Error {
	sum := sha256.Sum256(blob)
	switch {
	case version != l.weights.GetVersion()+1:
		return cluster.Errorf(cluster.CodeConflict, "weights of version %d cannot follow version %d", version, l.weights.GetVersion())
	case len(blob) == 0 || len(blob) > maxWeights:
		return cluster.Errorf(cluster.CodeInvalid, "weights of %d bytes, 1 to %d are allowed", len(blob), maxWeights)
	case !bytes.Equal(sum[:], sha):
		return cluster.Errorf(cluster.CodeInvalid, "weights do not match their checksum")
	}
	return nil
}

// install puts weights into use as the next version. Their content is the leader's
// to check: a rule that changes with the predictor must not decide what replicas
// store.
func (l *Store) install(at command.Entry, c *logv1.InstallWeights) command.Result {
	o := c.GetOrigin()
	switch {
	case o.GetSource() != WeightsLearned && o.GetSource() != WeightsImport:
		return command.Refuse(cluster.CodeInvalid, "weights from %.20q: must be %s or %s", o.GetSource(), WeightsLearned, WeightsImport)
	case o.ChampionErrPpm < 0 || o.ChallengerErrPpm < 0 || len(o.Reason) > MaxWeightsReason:
		return command.Refuse(cluster.CodeInvalid, "weights with a negative error, or a reason of %d bytes, at most %d are allowed", len(o.Reason), MaxWeightsReason)
	case o.Source == WeightsLearned && l.pin != nil:
		return command.Refuse(cluster.CodeDenied, "version %d is pinned; nothing learned replaces it until: berth model unpin", l.weights.GetVersion())
	}
	if err := l.checkNext(c.Version, c.Blob, c.Sha256); err != nil {
		return command.Result{Err: err}
	}
	seq := o.SampleSeq
	if o.Source != WeightsLearned {
		seq = l.seq
	}
	l.putWeights(at, c.Blob, c.Sha256, &logv1.WeightsOrigin{
		Source: o.Source, By: o.By, Trained: o.Trained, Tested: o.Tested,
		ChampionErrPpm: o.ChampionErrPpm, ChallengerErrPpm: o.ChallengerErrPpm, Reason: o.Reason, SampleSeq: seq,
	})
	return command.Result{}
}

// rollback puts a kept version back into use. It becomes the next version, so that
// versions only rise.
func (l *Store) rollback(at command.Entry, c *logv1.RollbackWeights) command.Result {
	i := slices.IndexFunc(l.kept, func(w *logv1.Weights) bool { return w.Version == c.To })
	switch {
	case c.Version != l.weights.GetVersion()+1:
		return command.Refuse(cluster.CodeConflict, "version %d is in use by now; look again, then roll back", l.weights.GetVersion())
	case l.weights != nil && c.To == l.weights.Version:
		return command.Refuse(cluster.CodeConflict, "version %d is in use already", c.To)
	case i < 0:
		return command.Refuse(cluster.CodeNotFound, "version %d is not kept; see: berth model list", c.To)
	}
	w := l.kept[i]
	o := w.GetOrigin()
	l.putWeights(at, w.Blob, w.Sha256, &logv1.WeightsOrigin{
		Source: WeightsRollback, By: c.By, RolledBackTo: c.To, Trained: o.GetTrained(), Tested: o.GetTested(),
		ChampionErrPpm: o.GetChampionErrPpm(), ChallengerErrPpm: o.GetChallengerErrPpm(), SampleSeq: l.seq,
	})
	return command.Result{}
}

// putWeights puts weights into use and keeps the previous ones, except for the
// oldest.
func (l *Store) putWeights(at command.Entry, blob, sha []byte, o *logv1.WeightsOrigin) {
	version := l.weights.GetVersion() + 1
	if l.weights != nil {
		l.keep(l.weights)
	}
	for len(l.kept) > keptWeights-1 {
		l.digests.kept.Touch(l.kept[0].Version)
		l.kept = slices.Clone(l.kept[1:])
	}
	l.weights = &logv1.Weights{Version: version, Blob: blob, Sha256: sha, AtUs: int64(at.Now), Origin: o}
	l.digests.weights.Touch(table.One{})
}

// keep appends a version to the kept ones; views may hold the old slice.
func (l *Store) keep(w *logv1.Weights) {
	l.kept = append(slices.Clip(l.kept), w)
	l.digests.kept.Touch(w.Version)
}

// pinWeights stops the learner from publishing, or lets it publish again.
func (l *Store) pinWeights(at command.Entry, c *logv1.PinWeights) command.Result {
	if c.Pinned && c.Version != l.weights.GetVersion() {
		return command.Refuse(cluster.CodeConflict, "version %d is in use by now, and not %d; look again, then pin", l.weights.GetVersion(), c.Version)
	}
	switch {
	case !c.Pinned:
		l.pin = nil
	case l.pin == nil:
		l.pin = &logv1.WeightsPin{AtUs: int64(at.Now), By: c.By}
	}
	l.digests.pin.Touch(table.One{})
	return command.Result{}
}

// copyWeights drops fields that a newer version may have set.
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

// Check checks that restored versions rise up to the one in use.
func (l *Store) Check() error {
	last := uint64(0)
	for _, w := range l.kept {
		if w.Version <= last || w.Version >= l.weights.GetVersion() {
			return fmt.Errorf("weights of version %d are kept, out of order; version %d is in use", w.Version, l.weights.GetVersion())
		}
		last = w.Version
	}
	if len(l.kept) > keptWeights-1 {
		return fmt.Errorf("%d old versions of the weights, at most %d are kept", len(l.kept), keptWeights-1)
	}
	return nil
}
