package fsm

import (
	"fmt"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/intern"
	"github.com/berth-scheduler/berth/fsm/jobs"
	"github.com/berth-scheduler/berth/fsm/table"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

func (s *State) metaRecord() *logv1.Meta {
	return &logv1.Meta{
		Index: s.index, Term: s.term, NowUs: int64(s.now), NextJob: uint64(s.nextJob),
		LastHashIndex: s.lastHash, SampleSeq: s.learned.Seq(), EntryVersion: s.format,
	}
}

// each calls put with every record of the state in an order that does not
// depend on maps, nodes before jobs before queues, and stops at an error.
func (s *State) each(put func(*logv1.Record) error) error {
	w := table.NewWriter(put)
	w.Send(&logv1.Record{Kind: &logv1.Record_Meta{Meta: s.metaRecord()}})
	if s.config != nil {
		w.Send(&logv1.Record{Kind: &logv1.Record_Config{Config: s.config}})
	}
	s.blobs.Each(w, s.named())
	s.fleet.EachPartition(w)
	s.books.Each(w)
	s.fleet.Each(w)
	for _, id := range table.SortedKeys(s.arrays) {
		w.Send(&logv1.Record{Kind: &logv1.Record_Array{Array: s.arrayRecord(s.arrays[id])}})
	}
	jobs.Merge([]*jobs.Set{&s.jobs}, 0, func(j *cluster.Job) bool {
		w.Send(&logv1.Record{Kind: &logv1.Record_Job{Job: s.jobRecord(j)}})
		return w.Err() == nil
	})
	s.queues.Each(w)
	s.requests.Each(w)
	s.keyring.Each(w)
	s.learned.Each(w)
	s.outbox.Each(w)
	return w.Err()
}

// load takes over one record of a snapshot.
func (s *State) load(r *logv1.Record) error {
	switch k := r.Kind.(type) {
	case *logv1.Record_Meta:
		m := k.Meta
		s.index, s.term, s.now, s.nextJob = m.Index, m.Term, cluster.Time(m.NowUs), cluster.JobID(m.NextJob)
		s.lastHash, s.format = m.LastHashIndex, m.EntryVersion
		s.learned.Number(m.SampleSeq)
	case *logv1.Record_Config:
		s.config = copyConfig(k.Config)
		s.digests.config.Touch(table.One{})
	case *logv1.Record_Bulk, *logv1.Record_Upload:
		return s.blobs.Load(s.now, r)
	case *logv1.Record_Partition, *logv1.Record_Reservation, *logv1.Record_SharingOff, *logv1.Record_Node:
		return s.fleet.Load(r)
	case *logv1.Record_Standing, *logv1.Record_Spent:
		return s.books.Load(r)
	case *logv1.Record_Array:
		return s.loadArray(k.Array)
	case *logv1.Record_Job:
		return s.loadJob(k.Job)
	case *logv1.Record_Queue:
		gpu := cluster.GPUID(k.Queue.Gpu)
		intern.Share(s.texts, &gpu)
		s.queues.Load(gpu, k.Queue)
	case *logv1.Record_Request:
		return s.requests.Load(k.Request)
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

// loadJob takes a job and what it holds. Nodes come before jobs.
func (s *State) loadJob(m *logv1.Job) error {
	j, err := s.readJob(m)
	if err != nil {
		return err
	}
	if s.jobs.Get(j.ID) != nil {
		return fmt.Errorf("job %d appears twice", j.ID)
	}
	s.intern(j)
	if j.State.Live() {
		a := j.Live()
		if a == nil {
			return fmt.Errorf("job %d is %s without a live attempt", j.ID, j.State)
		}
		if err := checkGang(j, a); err != nil {
			return err
		}
		for _, b := range a.Held() {
			for _, g := range b.GPUs {
				s.fleet.Ledger().Remember(b.Node, g.GPU) // it may have vanished under the job
				s.fleet.Lay(g.GPU, j.ID)
			}
			if !s.fleet.Ledger().Take(b) {
				return fmt.Errorf("job %d is on node %q, which is not there", j.ID, b.Node)
			}
		}
	}
	s.place(nil, j)
	return nil
}
