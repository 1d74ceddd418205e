package fsm

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// record returns the stored form of an entity, nil when it is gone.
func (s *State) record(e entity) proto.Message {
	switch e.kind {
	case kindConfig:
		if s.config != nil {
			return s.config
		}
	case kindNode:
		if n := s.nodes[cluster.NodeID(e.key)]; n != nil {
			return conv.NodeToLog(n)
		}
	case kindQueue:
		if q := s.queues[cluster.GPUID(e.key)]; len(q) > 0 {
			return queueRecord(cluster.GPUID(e.key), q)
		}
	case kindToken:
		if t := s.tokens[e.key]; t != nil {
			return t
		}
	case kindDenied:
		role, id, _ := strings.Cut(e.key, "/")
		if at, ok := s.denied[identity{role, id}]; ok {
			return &logv1.DeniedIdentity{Role: role, Id: id, AtUs: int64(at)}
		}
	case kindWeights:
		if s.weights != nil {
			return s.weights
		}
	case kindKept:
		if w := s.keptRecord(e.key); w != nil {
			return w
		}
	case kindPin:
		if s.pin != nil {
			return s.pin
		}
	case kindPartition:
		if p := s.parts[e.key]; p != nil {
			return conv.PartitionToLog(p)
		}
	case kindStanding:
		return s.standing.record(e.key)
	case kindSpent:
		return s.standing.spentRecord(e.key)
	case kindReservation:
		if r := s.reservation(e.key); r != nil {
			return conv.ReservationToLog(r)
		}
	case kindUnshared:
		if o := s.unshared.Get(e.key); o != nil {
			return conv.SharingOffToLog(o)
		}
	case kindInterference:
		if s.company != nil {
			return s.company
		}
	case kindHook:
		if h := s.hookRecord(e.key); h != nil {
			return h
		}
	case kindTelling:
		if s.out.told != (telling{}) {
			return s.out.told.record()
		}
	}
	return nil
}

func (s *State) metaRecord() *logv1.Meta {
	return &logv1.Meta{
		Index: s.index, Term: s.term, NowUs: int64(s.now), NextJob: uint64(s.nextJob),
		LastHashIndex: s.lastHash, SampleSeq: s.sampleNo, EntryVersion: s.format,
	}
}

func queueRecord(g cluster.GPUID, q []cluster.Waiter) *logv1.Queue {
	m := &logv1.Queue{Gpu: string(g), Waiters: make([]*logv1.Waiter, 0, len(q))}
	for _, w := range q {
		m.Waiters = append(m.Waiters, &logv1.Waiter{Job: uint64(w.Job), Rank: w.Rank})
	}
	return m
}

// waitersPerRecord keeps the records of long queues small.
const waitersPerRecord = 10_000

// each calls put with every record of the state in an order that does not
// depend on maps, nodes before jobs before queues, and stops at an error.
func (s *State) each(put func(*logv1.Record) error) error {
	w := &putter{put: put}
	w.send(&logv1.Record{Kind: &logv1.Record_Meta{Meta: s.metaRecord()}})
	if s.config != nil {
		w.send(&logv1.Record{Kind: &logv1.Record_Config{Config: s.config}})
	}
	for _, name := range sortedKeys(s.parts) {
		w.send(&logv1.Record{Kind: &logv1.Record_Partition{Partition: conv.PartitionToLog(s.parts[name])}})
	}
	s.standing.each(w)
	for _, r := range s.reserved {
		w.send(&logv1.Record{Kind: &logv1.Record_Reservation{Reservation: conv.ReservationToLog(r)}})
	}
	for _, o := range s.unshared {
		w.send(&logv1.Record{Kind: &logv1.Record_SharingOff{SharingOff: conv.SharingOffToLog(o)}})
	}
	for _, id := range sortedKeys(s.nodes) {
		w.send(&logv1.Record{Kind: &logv1.Record_Node{Node: conv.NodeToLog(s.nodes[id])}})
	}
	for _, id := range sortedKeys(s.arrays) {
		w.send(&logv1.Record{Kind: &logv1.Record_Array{Array: s.arrays[id].record()}})
	}
	merge([]*jobSet{&s.jobs}, 0, func(j *cluster.Job) bool {
		w.send(&logv1.Record{Kind: &logv1.Record_Job{Job: conv.JobToLog(j)}})
		return w.err == nil
	})
	for _, id := range sortedKeys(s.queues) {
		for q := range slices.Chunk(s.queues[id], waitersPerRecord) {
			w.send(&logv1.Record{Kind: &logv1.Record_Queue{Queue: queueRecord(id, q)}})
		}
	}
	for _, r := range s.reqOrder {
		w.send(&logv1.Record{Kind: &logv1.Record_Request{Request: r.record()}})
	}
	for _, k := range sortedKeys(s.tokens) {
		w.send(&logv1.Record{Kind: &logv1.Record_Token{Token: s.tokens[k]}})
	}
	for _, id := range s.sortedDenied() {
		w.send(&logv1.Record{Kind: &logv1.Record_Denied{Denied: &logv1.DeniedIdentity{Role: id.role, Id: id.id, AtUs: int64(s.denied[id])}}})
	}
	for _, k := range s.kept {
		w.send(&logv1.Record{Kind: &logv1.Record_KeptWeights{KeptWeights: k}})
	}
	if s.weights != nil {
		w.send(&logv1.Record{Kind: &logv1.Record_Weights{Weights: s.weights}})
	}
	if s.pin != nil {
		w.send(&logv1.Record{Kind: &logv1.Record_WeightsPin{WeightsPin: s.pin}})
	}
	if s.company != nil {
		w.send(&logv1.Record{Kind: &logv1.Record_Interference{Interference: s.company}})
	}
	for i := range s.samples {
		w.send(&logv1.Record{Kind: &logv1.Record_Sample{Sample: s.samples[i].record()}})
	}
	s.eachTelling(w)
	return w.err
}

// putter sends records until the first error.
type putter struct {
	put func(*logv1.Record) error
	err error
}

func (p *putter) send(r *logv1.Record) {
	if p.err == nil {
		p.err = p.put(r)
	}
}

func (s *State) sortedDenied() []identity {
	ids := make([]identity, 0, len(s.denied))
	for id := range s.denied {
		ids = append(ids, id)
	}
	sort.Slice(ids, func(i, k int) bool { return ids[i].key() < ids[k].key() })
	return ids
}

func sortedKeys[K interface{ ~string | ~uint64 }, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// load takes over one record of a snapshot.
func (s *State) load(r *logv1.Record) error {
	switch k := r.Kind.(type) {
	case *logv1.Record_Meta:
		m := k.Meta
		s.index, s.term, s.now, s.nextJob = m.Index, m.Term, cluster.Time(m.NowUs), cluster.JobID(m.NextJob)
		s.lastHash, s.sampleNo, s.format = m.LastHashIndex, m.SampleSeq, m.EntryVersion
	case *logv1.Record_Config:
		s.config = copyConfig(k.Config)
		s.hash.rest.touch(entity{kind: kindConfig})
	case *logv1.Record_Partition:
		return s.loadPartition(k.Partition)
	case *logv1.Record_Standing:
		return s.loadStanding(k.Standing)
	case *logv1.Record_Spent:
		return s.loadSpent(k.Spent)
	case *logv1.Record_Reservation:
		return s.loadReservation(k.Reservation)
	case *logv1.Record_SharingOff:
		return s.loadSharing(k.SharingOff)
	case *logv1.Record_Node:
		return s.loadNode(k.Node)
	case *logv1.Record_Array:
		return s.loadArray(k.Array)
	case *logv1.Record_Job:
		return s.loadJob(k.Job)
	case *logv1.Record_Queue:
		return s.loadQueue(k.Queue)
	case *logv1.Record_Request:
		return s.loadRequest(k.Request)
	case *logv1.Record_Token:
		s.tokens[string(k.Token.Hash)] = copyToken(k.Token)
		s.hash.rest.touch(entity{kindToken, string(k.Token.Hash)})
	case *logv1.Record_Denied:
		who := identity{k.Denied.Role, k.Denied.Id}
		s.denied[who] = cluster.Time(k.Denied.AtUs)
		s.hash.rest.touch(entity{kindDenied, who.key()})
	case *logv1.Record_Weights:
		s.weights = copyWeights(k.Weights)
		s.hash.rest.touch(entity{kind: kindWeights})
	case *logv1.Record_KeptWeights:
		s.keep(copyWeights(k.KeptWeights))
	case *logv1.Record_WeightsPin:
		s.pin = &logv1.WeightsPin{AtUs: k.WeightsPin.AtUs, By: k.WeightsPin.By}
		s.hash.rest.touch(entity{kind: kindPin})
	case *logv1.Record_Interference:
		s.company = copyInterference(k.Interference)
		s.hash.rest.touch(entity{kind: kindInterference})
	case *logv1.Record_Sample:
		return s.loadSample(k.Sample)
	case *logv1.Record_Telling:
		s.loadTelling(k.Telling)
	case *logv1.Record_Webhook:
		return s.loadWebhook(k.Webhook)
	case *logv1.Record_Notice:
		return s.loadNotice(k.Notice)
	case *logv1.Record_DeadNotice:
		return s.loadDead(k.DeadNotice)
	default:
		return fmt.Errorf("record of unknown kind %T", r.Kind)
	}
	return nil
}

func (s *State) loadNode(m *logv1.Node) error {
	n, err := conv.NodeFromLog(m)
	if err != nil {
		return err
	}
	if s.nodes[n.ID] != nil {
		return fmt.Errorf("node %s appears twice", n.ID)
	}
	s.putNode(n)
	return nil
}

// loadJob takes a job and what it holds. Nodes come before jobs.
func (s *State) loadJob(m *logv1.Job) error {
	j, err := s.readJob(m)
	if err != nil {
		return err
	}
	if s.jobs.get(j.ID) != nil {
		return fmt.Errorf("job %d appears twice", j.ID)
	}
	s.cache.job(j)
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
				s.ledger.Remember(b.Node, g.GPU) // it may have vanished under the job
				s.layOn(g.GPU, j.ID)
			}
			if !s.ledger.Take(b) {
				return fmt.Errorf("job %d is on node %q, which is not there", j.ID, b.Node)
			}
		}
	}
	s.place(nil, j)
	return nil
}

func (s *State) loadQueue(m *logv1.Queue) error {
	gpu := cluster.GPUID(m.Gpu)
	share(&s.cache, &gpu)
	q := s.queues[gpu]
	for _, w := range m.Waiters {
		q = append(q, cluster.Waiter{Job: cluster.JobID(w.Job), Rank: w.Rank})
	}
	s.setQueue(gpu, q)
	return nil
}

func (s *State) loadRequest(m *logv1.Request) error {
	r := &request{count: len(m.Jobs), at: cluster.Time(m.AtUs)}
	if len(m.Key) != len(r.key) || len(m.BodyHash) != len(r.bodyHash) || len(m.Jobs) == 0 {
		return errors.New("request is malformed")
	}
	copy(r.key[:], m.Key)
	copy(r.bodyHash[:], m.BodyHash)
	r.first = cluster.JobID(m.Jobs[0])
	if m.Jobs[len(m.Jobs)-1]-m.Jobs[0] != uint64(len(m.Jobs)-1) {
		for _, id := range m.Jobs {
			r.ids = append(r.ids, cluster.JobID(id))
		}
	}
	if s.requests[r.key] != nil {
		return errors.New("request appears twice")
	}
	s.addRequest(r)
	return nil
}

func (s *State) loadSample(m *logv1.Sample) error {
	if n := len(s.samples); n > 0 && s.samples[n-1].Seq >= m.Seq {
		return fmt.Errorf("sample %d is out of order", m.Seq)
	}
	x := Sample{
		Seq: m.Seq, Signature: m.Signature, GPUType: m.GpuType, GPUMemPeakMiB: m.GpuMemPeakMib, Milli: m.Milli,
		Duration: time.Duration(m.DurationUs) * time.Microsecond, HostMemMiB: m.HostMemMib, CPUMilli: m.CpuMilli,
		Censored: m.Censored, UID: cluster.UID(m.Uid), Features: m.Features, PowerW: m.PowerW, Steps: m.Steps,
		Neighbours: int(min(m.Neighbours, cluster.MaxNeighbours)), Predicted: conv.EstimateFromLog(m.Predicted), At: cluster.Time(m.AtUs),
		CapMode: m.CapMode,
	}
	if len(m.Company) > MaxCompany {
		return fmt.Errorf("sample %d has company of %d kinds, at most %d are kept", m.Seq, len(m.Company), MaxCompany)
	}
	for _, c := range m.Company {
		x.Company = append(x.Company, Company{Signature: c.Signature, Overlap: time.Duration(c.OverlapUs) * time.Microsecond, Milli: c.Milli})
	}
	s.cache.sample(&x)
	s.samples = append(s.samples, x)
	s.hash.samples.touch(x.Seq)
	return nil
}
