package fsm

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
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
	case kindMeta:
		return s.metaRecord()
	case kindConfig:
		if s.config != nil {
			return s.config
		}
	case kindNode:
		if n := s.nodes[cluster.NodeID(e.key)]; n != nil {
			return conv.NodeToLog(n)
		}
	case kindJob:
		id, _ := strconv.ParseUint(e.key, 10, 64)
		if j := s.jobs[cluster.JobID(id)]; j != nil {
			return conv.JobToLog(j)
		}
	case kindQueue:
		if q := s.queues[cluster.GPUID(e.key)]; len(q) > 0 {
			return queueRecord(cluster.GPUID(e.key), q)
		}
	case kindRequest:
		if r, ok := s.requests[requestKey([]byte(e.key))]; ok {
			return requestRecord(requestKey([]byte(e.key)), r)
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
	case kindSample:
		seq, _ := strconv.ParseUint(e.key, 10, 64)
		i := sort.Search(len(s.samples), func(i int) bool { return s.samples[i].Seq >= seq })
		if i < len(s.samples) && s.samples[i].Seq == seq {
			return sampleRecord(s.samples[i])
		}
	}
	return nil
}

func (s *State) metaRecord() *logv1.Meta {
	return &logv1.Meta{
		Index: s.index, Term: s.term, NowUs: int64(s.now), NextJob: uint64(s.nextJob),
		LastHashIndex: s.lastHash, SampleSeq: s.sampleNo,
	}
}

func queueRecord(g cluster.GPUID, q []cluster.Waiter) *logv1.Queue {
	m := &logv1.Queue{Gpu: string(g)}
	for _, w := range q {
		m.Waiters = append(m.Waiters, &logv1.Waiter{Job: uint64(w.Job), Rank: w.Rank})
	}
	return m
}

func requestRecord(k requestKey, r request) *logv1.Request {
	m := &logv1.Request{Key: k[:], BodyHash: r.bodyHash[:], AtUs: int64(r.at)}
	for _, id := range r.jobs {
		m.Jobs = append(m.Jobs, uint64(id))
	}
	return m
}

func sampleRecord(x Sample) *logv1.Sample {
	return &logv1.Sample{
		Seq: x.Seq, Signature: x.Signature, GpuType: x.GPUType, GpuMemPeakMib: x.GPUMemPeakMiB, Milli: x.Milli,
		DurationUs: x.Duration.Microseconds(), HostMemMib: x.HostMemMiB, CpuMilli: x.CPUMilli, Censored: x.Censored, Uid: uint32(x.UID),
	}
}

// each calls put with every record, in an order that does not depend on maps.
func (s *State) each(put func(*logv1.Record) error) error {
	send := func(recs ...*logv1.Record) error {
		for _, r := range recs {
			if err := put(r); err != nil {
				return err
			}
		}
		return nil
	}
	if err := send(&logv1.Record{Kind: &logv1.Record_Meta{Meta: s.metaRecord()}}); err != nil {
		return err
	}
	if s.config != nil {
		if err := send(&logv1.Record{Kind: &logv1.Record_Config{Config: s.config}}); err != nil {
			return err
		}
	}
	for _, id := range sortedKeys(s.nodes) {
		if err := send(&logv1.Record{Kind: &logv1.Record_Node{Node: conv.NodeToLog(s.nodes[id])}}); err != nil {
			return err
		}
	}
	for _, id := range sortedKeys(s.jobs) {
		if err := send(&logv1.Record{Kind: &logv1.Record_Job{Job: conv.JobToLog(s.jobs[id])}}); err != nil {
			return err
		}
	}
	for _, id := range sortedKeys(s.queues) {
		if err := send(&logv1.Record{Kind: &logv1.Record_Queue{Queue: queueRecord(id, s.queues[id])}}); err != nil {
			return err
		}
	}
	for _, k := range s.reqOrder {
		if err := send(&logv1.Record{Kind: &logv1.Record_Request{Request: requestRecord(k, s.requests[k])}}); err != nil {
			return err
		}
	}
	return s.eachSmall(send)
}

func (s *State) eachSmall(send func(...*logv1.Record) error) error {
	for _, k := range sortedKeys(s.tokens) {
		if err := send(&logv1.Record{Kind: &logv1.Record_Token{Token: s.tokens[k]}}); err != nil {
			return err
		}
	}
	ids := make([]identity, 0, len(s.denied))
	for id := range s.denied {
		ids = append(ids, id)
	}
	sort.Slice(ids, func(i, k int) bool { return ids[i].role+"/"+ids[i].id < ids[k].role+"/"+ids[k].id })
	for _, id := range ids {
		if err := send(&logv1.Record{Kind: &logv1.Record_Denied{Denied: &logv1.DeniedIdentity{Role: id.role, Id: id.id, AtUs: int64(s.denied[id])}}}); err != nil {
			return err
		}
	}
	if s.weights != nil {
		if err := send(&logv1.Record{Kind: &logv1.Record_Weights{Weights: s.weights}}); err != nil {
			return err
		}
	}
	for _, x := range s.samples {
		if err := send(&logv1.Record{Kind: &logv1.Record_Sample{Sample: sampleRecord(x)}}); err != nil {
			return err
		}
	}
	return nil
}

func sortedKeys[K interface{ ~string | ~uint64 }, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// load takes over one record of a snapshot.
func (s *State) load(r *logv1.Record) error {
	switch k := r.Kind.(type) {
	case *logv1.Record_Meta:
		m := k.Meta
		s.index, s.term, s.now, s.nextJob = m.Index, m.Term, cluster.Time(m.NowUs), cluster.JobID(m.NextJob)
		s.lastHash, s.sampleNo = m.LastHashIndex, m.SampleSeq
	case *logv1.Record_Config:
		s.config = k.Config
		s.hash.touch(kindConfig, "")
	case *logv1.Record_Node:
		return s.loadNode(conv.NodeFromLog(k.Node))
	case *logv1.Record_Job:
		return s.loadJob(conv.JobFromLog(k.Job))
	case *logv1.Record_Queue:
		for _, w := range k.Queue.Waiters {
			s.enqueue(cluster.GPUID(k.Queue.Gpu), cluster.Waiter{Job: cluster.JobID(w.Job), Rank: w.Rank})
		}
	case *logv1.Record_Request:
		return s.loadRequest(k.Request)
	case *logv1.Record_Token:
		s.tokens[string(k.Token.Hash)] = k.Token
		s.hash.touch(kindToken, string(k.Token.Hash))
	case *logv1.Record_Denied:
		s.denied[identity{k.Denied.Role, k.Denied.Id}] = cluster.Time(k.Denied.AtUs)
		s.hash.touch(kindDenied, k.Denied.Role+"/"+k.Denied.Id)
	case *logv1.Record_Weights:
		s.weights = k.Weights
		s.hash.touch(kindWeights, "")
	case *logv1.Record_Sample:
		x := k.Sample
		s.samples = append(s.samples, Sample{
			Seq: x.Seq, Signature: x.Signature, GPUType: x.GpuType, GPUMemPeakMiB: x.GpuMemPeakMib, Milli: x.Milli,
			Duration: micros(x.DurationUs), HostMemMiB: x.HostMemMib, CPUMilli: x.CpuMilli, Censored: x.Censored, UID: cluster.UID(x.Uid),
		})
		s.hash.touch(kindSample, sampleKey(x.Seq))
	default:
		return fmt.Errorf("record of unknown kind %T", r.Kind)
	}
	return nil
}

func (s *State) loadNode(n *cluster.Node) error {
	if n.ID == "" {
		return fmt.Errorf("node without a name")
	}
	for i := range n.GPUs {
		s.gpuNode[n.GPUs[i].ID] = n.ID
	}
	s.putNode(n)
	return nil
}

// loadJob takes a job and what it holds. Nodes come before jobs.
func (s *State) loadJob(j *cluster.Job) error {
	if j.ID == 0 || !j.State.Valid() || s.jobs[j.ID] != nil {
		return fmt.Errorf("job %d is malformed or appears twice", j.ID)
	}
	if j.State.Live() {
		a := j.Live()
		if a == nil {
			return fmt.Errorf("job %d is %s without an attempt", j.ID, j.State)
		}
		for _, g := range a.Berth.GPUs {
			s.ledger.Remember(a.Berth.Node, g.GPU) // it may have vanished under the job
			s.layOn(g.GPU, j.ID)
		}
		if !s.ledger.Take(&a.Berth) {
			return fmt.Errorf("job %d is on node %q, which is not there", j.ID, a.Berth.Node)
		}
	}
	s.putJob(nil, j)
	return nil
}

func (s *State) loadRequest(r *logv1.Request) error {
	if len(r.Key) != len(requestKey{}) || len(r.BodyHash) != 16 {
		return fmt.Errorf("request of %d and %d bytes", len(r.Key), len(r.BodyHash))
	}
	k := requestKey(r.Key)
	req := request{at: cluster.Time(r.AtUs)}
	copy(req.bodyHash[:], r.BodyHash)
	for _, id := range r.Jobs {
		req.jobs = append(req.jobs, cluster.JobID(id))
	}
	s.requests[k] = req
	s.reqOrder = append(s.reqOrder, k)
	s.hash.touch(kindRequest, string(k[:]))
	return nil
}
