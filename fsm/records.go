package fsm

import (
	"fmt"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/table"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

func (s *State) metaRecord() *logv1.Meta {
	return &logv1.Meta{
		Index: s.at.Index, Term: s.term, NowUs: int64(s.at.Now), NextJob: uint64(s.roll.NextID),
		LastHashIndex: s.lastHash, SampleSeq: s.learned.Seq(), EntryVersion: s.at.Format,
	}
}

// each sends every record of the state in an order that does not depend on maps:
// nodes, jobs, then queues. It returns the first error.
func (s *State) each(w *table.Writer) error {
	w.Send(&logv1.Record{Kind: &logv1.Record_Meta{Meta: s.metaRecord()}})
	if s.config != nil {
		w.Send(&logv1.Record{Kind: &logv1.Record_Config{Config: s.config}})
	}
	s.blobs.Each(w, s.roll.Named())
	s.fleet.EachPartition(w)
	s.books.Each(w)
	s.fleet.Each(w)
	s.roll.Each(w)
	s.desk.Requests.Each(w)
	s.keyring.Each(w)
	s.learned.Each(w)
	s.outbox.Each(w)
	return w.Err()
}

// load restores one record of a snapshot.
func (s *State) load(r *logv1.Record) error {
	switch k := r.Kind.(type) {
	case *logv1.Record_Meta:
		m := k.Meta
		s.at.Index, s.term, s.at.Now, s.roll.NextID = m.Index, m.Term, cluster.Time(m.NowUs), cluster.JobID(m.NextJob)
		s.lastHash, s.at.Format = m.LastHashIndex, m.EntryVersion
		s.learned.Number(m.SampleSeq)
	case *logv1.Record_Config:
		s.setConfig(k.Config)
	case *logv1.Record_Bulk, *logv1.Record_Upload:
		return s.blobs.Load(s.at.Now, r)
	case *logv1.Record_Partition, *logv1.Record_Reservation, *logv1.Record_SharingOff, *logv1.Record_Node:
		return s.fleet.Load(r)
	case *logv1.Record_Standing, *logv1.Record_Spent:
		return s.books.Load(r)
	case *logv1.Record_Array, *logv1.Record_Job, *logv1.Record_Queue:
		return s.roll.Load(r)
	case *logv1.Record_Request:
		return s.desk.Requests.Load(k.Request)
	case *logv1.Record_Token, *logv1.Record_Denied:
		return s.keyring.Load(r)
	case *logv1.Record_Weights, *logv1.Record_KeptWeights, *logv1.Record_WeightsPin, *logv1.Record_Interference, *logv1.Record_Sample:
		return s.learned.Load(r)
	case *logv1.Record_Telling, *logv1.Record_Webhook, *logv1.Record_Notice, *logv1.Record_DeadNotice:
		return s.outbox.Load(r)
	default:
		return fmt.Errorf("record of unknown kind %T", r.Kind)
	}
	return nil
}
