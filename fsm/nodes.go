package fsm

import (
	"bytes"
	"crypto/sha256"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// register takes over how an agent describes its node.
func (s *State) register(index uint64, n *cluster.Node) Result {
	if s.isDenied("agent", string(n.ID)) {
		return refuse(cluster.CodeDenied, "node %s was removed from the cluster", n.ID)
	}
	old := s.nodes[n.ID]
	for i := range n.GPUs {
		if owner, ok := s.gpuNode[n.GPUs[i].ID]; ok && owner != n.ID {
			return refuse(cluster.CodeConflict, "GPU %s is registered by node %s: two nodes cannot have one GPU", n.GPUs[i].ID, owner)
		}
	}
	n.State, n.Revision, n.Changed, n.Registered = cluster.NodeReady, index, s.now, s.now
	if old != nil {
		n.Registered, n.Drain, n.DrainReason = old.Registered, old.Drain, old.DrainReason
		for i := range old.GPUs {
			if n.GPU(old.GPUs[i].ID) == nil {
				s.dissolve(index, old.GPUs[i].ID, cluster.ReasonNodeDown)
				delete(s.gpuNode, old.GPUs[i].ID)
			}
		}
	}
	for i := range n.GPUs {
		s.gpuNode[n.GPUs[i].ID] = n.ID
	}
	s.putNode(n)
	for _, id := range s.liveOn(n.ID) {
		s.nodeIsBack(index, id, n.BootID)
	}
	return Result{}
}

func (s *State) putNode(n *cluster.Node) {
	s.nodes[n.ID] = n
	s.ledger.SetNode(n)
	s.hash.touch(kindNode, string(n.ID))
	s.changes = append(s.changes, Change{Node: n.ID})
}

func (s *State) liveOn(id cluster.NodeID) []cluster.JobID {
	ids := make([]cluster.JobID, 0, len(s.nodeJobs[id]))
	for job := range s.nodeJobs[id] {
		ids = append(ids, job)
	}
	slices.Sort(ids)
	return ids
}

// nodeIsBack settles a live attempt when its node calls: a new boot has ended
// it; the same boot goes on where it was.
func (s *State) nodeIsBack(index uint64, id cluster.JobID, boot string) {
	old := s.jobs[id]
	j := old.Clone()
	a := j.Last()
	j.Revision = index
	if a.BootID != boot {
		a.Ended = s.now
		a.Reason = cluster.Reason{Code: cluster.ReasonNodeLost, Detail: "the node booted again"}
		s.finish(index, old, j, cluster.JobNodeFail)
		return
	}
	if a.State != cluster.JobUnreachable {
		return
	}
	a.State = cluster.JobStarting
	if a.Started != 0 {
		a.State = cluster.JobRunning
	}
	j.State, j.Reason = a.State, cluster.Reason{}
	s.putJob(old, j)
	s.changes = append(s.changes, Change{Job: id})
}

// setNodeState records that a node fell silent. Its shares stay taken: what
// runs there may well go on.
func (s *State) setNodeState(index uint64, c *logv1.SetNodeState) Result {
	old, ok := s.nodes[cluster.NodeID(c.Node)]
	switch {
	case !ok:
		return refuse(cluster.CodeNotFound, "node %q is not known", c.Node)
	case cluster.NodeState(c.State) != cluster.NodeUnreachable:
		return refuse(cluster.CodeInvalid, "a node comes back by registering")
	case old.BootID != c.BootId || old.State == cluster.NodeUnreachable:
		return Result{} // it called meanwhile, or this is known
	}
	n := *old
	n.State, n.Revision, n.Changed = cluster.NodeUnreachable, index, s.now
	s.putNode(&n)
	for _, id := range s.liveOn(n.ID) {
		was := s.jobs[id]
		j := was.Clone()
		j.Last().State, j.State, j.Revision = cluster.JobUnreachable, cluster.JobUnreachable, index
		j.Reason = cluster.Reason{Code: cluster.ReasonNodeDown, Detail: "node " + c.Node + " is silent"}
		s.putJob(was, j)
		s.changes = append(s.changes, Change{Job: id})
	}
	s.emptyQueues(index, &n)
	return Result{}
}

func (s *State) emptyQueues(index uint64, n *cluster.Node) {
	for i := range n.GPUs {
		s.dissolve(index, n.GPUs[i].ID, cluster.ReasonNodeDown)
	}
}

// drain keeps new jobs away from a node, or lets them come again.
func (s *State) drain(index uint64, c *logv1.DrainNode) Result {
	old, ok := s.nodes[cluster.NodeID(c.Node)]
	if !ok {
		return refuse(cluster.CodeNotFound, "node %q is not known", c.Node)
	}
	n := *old
	n.Drain, n.DrainReason, n.Revision, n.Changed = c.Drain, c.Reason, index, s.now
	if !c.Drain {
		n.DrainReason = ""
	}
	s.putNode(&n)
	if c.Drain {
		s.emptyQueues(index, &n)
	}
	return Result{}
}

// removeNode forgets a node that holds nothing, and never lets it back under
// this name.
func (s *State) removeNode(c *logv1.RemoveNode) Result {
	id := cluster.NodeID(c.Node)
	n, ok := s.nodes[id]
	switch {
	case !ok:
		return refuse(cluster.CodeNotFound, "node %q is not known", c.Node)
	case len(s.nodeJobs[id]) > 0:
		return refuse(cluster.CodeConflict, "node %s has %d live jobs; drain it and wait, or cancel them", id, len(s.nodeJobs[id]))
	}
	s.emptyQueues(s.index, n)
	for i := range n.GPUs {
		delete(s.gpuNode, n.GPUs[i].ID)
	}
	delete(s.nodes, id)
	delete(s.nodeJobs, id)
	s.ledger.RemoveNode(id)
	s.hash.touch(kindNode, c.Node)
	s.changes = append(s.changes, Change{Node: id})
	return s.deny(&logv1.DenyIdentity{Role: "agent", Id: c.Node})
}

func (s *State) isDenied(role, id string) bool {
	_, ok := s.denied[identity{role, id}]
	return ok
}

func (s *State) deny(c *logv1.DenyIdentity) Result {
	s.denied[identity{c.Role, c.Id}] = s.now
	s.hash.touch(kindDenied, c.Role+"/"+c.Id)
	return Result{}
}

func (s *State) createToken(t *logv1.Token) Result {
	switch {
	case len(t.GetHash()) != sha256.Size:
		return refuse(cluster.CodeInvalid, "token hash has %d bytes", len(t.GetHash()))
	case s.isDenied(t.Role, t.Id):
		return refuse(cluster.CodeDenied, "%s %s was removed from the cluster; use another name", t.Role, t.Id)
	}
	for k, old := range s.tokens { // which are dropped does not depend on the order
		if cluster.Time(old.ExpiresUs) < s.now {
			delete(s.tokens, k)
			s.hash.touch(kindToken, k)
		}
	}
	s.tokens[string(t.Hash)] = t
	s.hash.touch(kindToken, string(t.Hash))
	return Result{}
}

// useToken spends a token. Every wrong one gets the same answer.
func (s *State) useToken(c *logv1.UseToken) Result {
	t, ok := s.tokens[string(c.Hash)]
	if !ok || t.Id != c.Id || cluster.Time(t.ExpiresUs) < s.now || s.isDenied(t.Role, t.Id) {
		return refuse(cluster.CodeUnauthenticated, "the join token is wrong, used, expired, or for another name; make a new one with: berth token create --node NAME")
	}
	delete(s.tokens, string(c.Hash))
	s.hash.touch(kindToken, string(c.Hash))
	return Result{Token: &TokenInfo{Role: t.Role, ID: t.Id}}
}

func (s *State) publish(c *logv1.PublishWeights) Result {
	sum := sha256.Sum256(c.Blob)
	switch {
	case c.Version != s.weights.GetVersion()+1:
		return refuse(cluster.CodeConflict, "weights of version %d cannot follow version %d", c.Version, s.weights.GetVersion())
	case len(c.Blob) == 0 || len(c.Blob) > maxWeights:
		return refuse(cluster.CodeInvalid, "weights of %d bytes, 1 to %d are allowed", len(c.Blob), maxWeights)
	case !bytes.Equal(sum[:], c.Sha256):
		return refuse(cluster.CodeInvalid, "weights do not match their checksum")
	}
	s.weights = &logv1.Weights{Version: c.Version, Blob: c.Blob, Sha256: c.Sha256, AtUs: int64(s.now)}
	s.hash.touch(kindWeights, "")
	return Result{}
}

func (s *State) initCluster(c *logv1.InitCluster) Result {
	switch {
	case c.GetConfig().GetClusterId() == "":
		return refuse(cluster.CodeInvalid, "the cluster id is missing")
	case s.config != nil && s.config.ClusterId != c.Config.ClusterId:
		return refuse(cluster.CodeConflict, "the cluster is %q already", s.config.ClusterId)
	case s.config != nil:
		return Result{}
	}
	s.config = c.Config
	s.hash.touch(kindConfig, "")
	return Result{}
}
