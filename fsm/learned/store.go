// Package learned is the part of the state machine for what the cluster has
// learned: the samples that finished attempts left, and what was derived from them,
// the versions of the predictor's weights and the model of co-located jobs.
package learned

import (
	"fmt"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/fsm/command"
	"github.com/berth-scheduler/berth/fsm/intern"
	"github.com/berth-scheduler/berth/fsm/table"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// Store is what was learned. Its contents, except for the samples, are replaced and
// never changed in place.
type Store struct {
	weights      *logv1.Weights   // in use; nil before any
	kept         []*logv1.Weights // earlier ones, oldest first
	pin          *logv1.WeightsPin
	interference *logv1.Interference // nil before any
	samples      []Sample            // oldest first
	seq          uint64              // of the newest sample

	digests digests
	texts   *intern.Texts
}

type digests struct {
	weights, pin, interference *table.Digests[table.One]
	kept, samples              *table.Digests[uint64]
}

// New returns an empty store.
func New(h *table.Hash, texts *intern.Texts) *Store {
	l := &Store{texts: texts}
	l.digests = digests{
		weights: table.NewOne(h, table.Weights, func() proto.Message {
			if l.weights == nil {
				return nil
			}
			return l.weights
		}),
		pin: table.NewOne(h, table.Pin, func() proto.Message {
			if l.pin == nil {
				return nil
			}
			return l.pin
		}),
		interference: table.NewOne(h, table.Interference, func() proto.Message {
			if l.interference == nil {
				return nil
			}
			return l.interference
		}),
		kept: table.NewDigests(h, table.Kept, func(v uint64) []byte { return strconv.AppendUint(nil, v, 10) }, func(v uint64) proto.Message {
			if i := slices.IndexFunc(l.kept, func(w *logv1.Weights) bool { return w.Version == v }); i >= 0 {
				return l.kept[i]
			}
			return nil
		}),
		samples: table.NewDigests(h, table.Sample, h.Number, func(seq uint64) proto.Message {
			if x := l.sample(seq); x != nil {
				return x.record()
			}
			return nil
		}),
	}
	return l
}

// Apply applies a command about what was learned.
func (l *Store) Apply(at command.Entry, cmd *logv1.Command) command.Result {
	switch c := cmd.Kind.(type) {
	case *logv1.Command_PublishWeights:
		return l.publish(at, c.PublishWeights)
	case *logv1.Command_InstallWeights:
		return l.install(at, c.InstallWeights)
	case *logv1.Command_RollbackWeights:
		return l.rollback(at, c.RollbackWeights)
	case *logv1.Command_PinWeights:
		return l.pinWeights(at, c.PinWeights)
	case *logv1.Command_ImportRuns:
		return l.importRuns(at, c.ImportRuns)
	case *logv1.Command_InstallInterference:
		return l.installInterference(at, c.InstallInterference)
	}
	panic(fmt.Sprintf("learned: %T is not for this machine", cmd.Kind))
}

// InUse returns the predictor's published weights; version 0 is none.
func (l *Store) InUse() (version uint64, blob []byte) {
	return l.weights.GetVersion(), l.weights.GetBlob()
}

// Samples returns the samples of finished attempts, oldest first. They change with
// the next entry.
func (l *Store) Samples() []Sample { return l.samples }

// Seq returns the number of the newest sample ever taken.
func (l *Store) Seq() uint64 { return l.seq }

// Number sets the number of the newest sample in a restored state.
func (l *Store) Number(seq uint64) { l.seq = seq }

// View returns a copy for writing a snapshot; it does not change.
func (l *Store) View() *Store {
	return &Store{
		weights: l.weights, kept: l.kept, pin: l.pin, interference: l.interference, samples: slices.Clone(l.samples), seq: l.seq,
	}
}

// Each sends all records.
func (l *Store) Each(w *table.Writer) {
	for _, k := range l.kept {
		w.Send(&logv1.Record{Kind: &logv1.Record_KeptWeights{KeptWeights: k}})
	}
	if l.weights != nil {
		w.Send(&logv1.Record{Kind: &logv1.Record_Weights{Weights: l.weights}})
	}
	if l.pin != nil {
		w.Send(&logv1.Record{Kind: &logv1.Record_WeightsPin{WeightsPin: l.pin}})
	}
	if l.interference != nil {
		w.Send(&logv1.Record{Kind: &logv1.Record_Interference{Interference: l.interference}})
	}
	for i := range l.samples {
		w.Send(&logv1.Record{Kind: &logv1.Record_Sample{Sample: l.samples[i].record()}})
	}
}

// Load restores a record that Each sent.
func (l *Store) Load(r *logv1.Record) error {
	switch m := r.Kind.(type) {
	case *logv1.Record_Weights:
		l.weights = copyWeights(m.Weights)
		l.digests.weights.Touch(table.One{})
	case *logv1.Record_KeptWeights:
		l.keep(copyWeights(m.KeptWeights))
	case *logv1.Record_WeightsPin:
		l.pin = &logv1.WeightsPin{AtUs: m.WeightsPin.AtUs, By: m.WeightsPin.By}
		l.digests.pin.Touch(table.One{})
	case *logv1.Record_Interference:
		l.interference = copyInterference(m.Interference)
		l.digests.interference.Touch(table.One{})
	case *logv1.Record_Sample:
		return l.loadSample(m.Sample)
	}
	return nil
}
