package admission

import (
	"context"
	"crypto/sha256"
	"errors"
	"sync"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// bringTries is how often the large parts of jobs are put into the state if they
// are forgotten there before the jobs arrive.
const bringTries = 3

// bringing lets one call at a time put each environment with its script into the
// state: the others wait, and then find it there.
type bringing struct {
	mu    sync.Mutex
	under map[[sha256.Size]byte]chan struct{} // closed at the end
}

// begin returns a function to end what the caller may begin now, or what to wait
// for.
func (b *bringing) begin(sum [sha256.Size]byte) (end func(), wait <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if done := b.under[sum]; done != nil {
		return nil, done
	}
	if b.under == nil {
		b.under = map[[sha256.Size]byte]chan struct{}{}
	}
	done := make(chan struct{})
	b.under[sum] = done
	return func() {
		b.mu.Lock()
		delete(b.under, sum)
		b.mu.Unlock()
		close(done)
	}, nil
}

// namesBulk reports whether every coordinator reads specs that refer to large parts
// by name.
func (a *Admission) namesBulk() bool { return a.prop.Version() >= fsm.NamesBulk }

// Stored returns a spec as it goes into the log. Large parts are stored separately
// and named, if all coordinators know names.
func (a *Admission) Stored(s *cluster.Spec) *logv1.Spec {
	if !a.namesBulk() {
		return conv.SpecToLog(s)
	}
	if _, bulk := s.Weight(); bulk > 0 && s.Bulk == nil {
		s.Env, s.Script, s.Bulk = nil, nil, cluster.HoldBulk(s.Env, s.Script)
	}
	return conv.SpecNaming(s)
}

// Propose submits jobs of a user, after the parts that they name.
func (a *Admission) Propose(ctx context.Context, e *Entry, jobs []*cluster.Job, cmd *logv1.SubmitJob) (fsm.Result, error) {
	for try := 1; ; try++ {
		for i, j := range jobs {
			if len(cmd.Jobs[i].Spec.Bulk) == 0 {
				continue
			}
			if err := a.bring(ctx, e.Who.UID, j.Spec.Bulk); err != nil {
				return fsm.Result{}, err
			}
		}
		r, err := a.admitted(ctx, e, jobs, cmd)
		if !r.LacksBulk || try == bringTries {
			return r, err
		}
	}
}

// bring puts an environment with its script into the state, unless they are there.
func (a *Admission) bring(ctx context.Context, uid cluster.UID, b cluster.Bulk) error {
	for !a.fsm.HasBulk(b.Sum()) {
		end, wait := a.bringing.begin(b.Sum())
		if end != nil {
			defer end()
			if a.fsm.HasBulk(b.Sum()) { // since another call ended just before
				return nil
			}
			return a.putBulk(ctx, uid, b)
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return &cluster.Error{Code: cluster.CodeUnavailable, Msg: "gave up waiting for an environment and script to be stored; nothing was done; try again", Err: ctx.Err()}
		}
	}
	return nil
}

// putBulk proposes the parts one after the other, each in its own entry, so that
// others' entries go between them.
func (a *Admission) putBulk(ctx context.Context, uid cluster.UID, b cluster.Bulk) error {
	data, sum := cluster.EncodeBulk(b.Load()), b.Sum()
	for part, from := 0, 0; from < len(data); part, from = part+1, from+fsm.BulkPart {
		cmd := &logv1.PutBulk{
			Sum: sum[:], Size: uint32(len(data)), Part: uint32(part), Data: data[from:min(from+fsm.BulkPart, len(data))], Uid: uint32(uid),
		}
		_, err := a.prop.One(ctx, &logv1.Command{Kind: &logv1.Command_PutBulk{PutBulk: cmd}})
		if e, ok := errors.AsType[*cluster.Error](err); ok && e.Code == cluster.CodeUnknown {
			// Whatever happened to a part, no job was submitted.
			return &cluster.Error{Code: cluster.CodeUnavailable, Msg: "an environment and script could not be stored; nothing was done; try again", Err: err}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
