package conv

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// Ruling is a rule of priority or limits: an *Account, *Member, *QOS, *Quota or
// *AccountPolicy of package accounting.
type Ruling interface{ Check() error }

// RulingToLog converts a rule.
func RulingToLog(r Ruling) *logv1.Standing {
	switch x := r.(type) {
	case *accounting.Account:
		return &logv1.Standing{Revision: x.Revision, Kind: &logv1.Standing_Account{Account: &logv1.Account{
			Name: x.Name, Parent: x.Parent, Shares: x.Shares, Qos: x.QOS, DefaultQos: x.DefaultQOS,
		}}}
	case *accounting.Member:
		return &logv1.Standing{Revision: x.Revision, Kind: &logv1.Standing_Member{Member: &logv1.Member{
			Account: x.Account, Uid: uint32(x.UID), Name: x.Name, Shares: x.Shares, Default: x.Default, Coordinator: x.Coordinator,
		}}}
	case *accounting.QOS:
		return &logv1.Standing{Revision: x.Revision, Kind: &logv1.Standing_Qos{Qos: &logv1.QOS{
			Name: x.Name, Priority: x.Priority, Preempts: x.Preempts, GraceUs: x.Grace.Microseconds(), Cancel: x.Cancel, Default: x.Default,
		}}}
	case *accounting.Quota:
		l := &x.Limits
		return &logv1.Standing{Revision: x.Revision, Kind: &logv1.Standing_Quota{Quota: &logv1.Quota{
			Account: x.Subject.Account, Qos: x.Subject.QOS, User: x.Subject.User, Each: x.Subject.Each, Uid: uint32(x.Subject.UID), Name: x.Name,
			GpuMilli: l.GPUMilli, Running: l.Running, Jobs: l.Jobs, GpuTimeUs: int64(l.GPUTime), Period: string(l.Period),
			MaxTimeUs: l.MaxTime.Microseconds(), MaxGpus: l.MaxGPUs,
		}}}
	case *accounting.AccountPolicy:
		return &logv1.Standing{Revision: x.Revision, Kind: &logv1.Standing_Policy{Policy: &logv1.AccountPolicy{
			HalfLifeUs: x.HalfLife.Microseconds(), CoreMicro: x.CoreMicro, Require: x.Require, GpuWeights: weightsToLog(x.GPUWeights), BySpeed: x.BySpeed,
		}}}
	}
	return nil
}

// RulingFromLog converts back and checks the result.
func RulingFromLog(m *logv1.Standing) (Ruling, error) {
	var r Ruling
	switch k := m.GetKind().(type) {
	case *logv1.Standing_Account:
		x := k.Account
		r = &accounting.Account{Name: x.GetName(), Parent: x.GetParent(), Revision: m.Revision, Shares: x.GetShares(), QOS: x.GetQos(), DefaultQOS: x.GetDefaultQos()}
	case *logv1.Standing_Member:
		x := k.Member
		r = &accounting.Member{Account: x.GetAccount(), UID: cluster.UID(x.GetUid()), Name: x.GetName(), Revision: m.Revision, Shares: x.GetShares(), Default: x.GetDefault(), Coordinator: x.GetCoordinator()}
	case *logv1.Standing_Qos:
		x := k.Qos
		r = &accounting.QOS{Name: x.GetName(), Revision: m.Revision, Priority: x.GetPriority(), Preempts: x.GetPreempts(), Grace: us(x.GetGraceUs()), Cancel: x.GetCancel(), Default: x.GetDefault()}
	case *logv1.Standing_Quota:
		x := k.Quota
		r = &accounting.Quota{
			Subject: accounting.Subject{Account: x.GetAccount(), QOS: x.GetQos(), User: x.GetUser(), Each: x.GetEach(), UID: cluster.UID(x.GetUid())}, Name: x.GetName(), Revision: m.Revision,
			Limits: accounting.Limits{
				GPUMilli: x.GetGpuMilli(), Running: x.GetRunning(), Jobs: x.GetJobs(), GPUTime: cluster.GPUTime(x.GetGpuTimeUs()), Period: accounting.Period(x.GetPeriod()),
				MaxTime: us(x.GetMaxTimeUs()), MaxGPUs: x.GetMaxGpus(),
			},
		}
	case *logv1.Standing_Policy:
		x := k.Policy
		r = &accounting.AccountPolicy{Revision: m.Revision, HalfLife: us(x.GetHalfLifeUs()), CoreMicro: x.GetCoreMicro(), Require: x.GetRequire(), GPUWeights: weightsFrom(x.GetGpuWeights()), BySpeed: x.GetBySpeed()}
	default:
		return nil, errors.New("standing: is of no kind that is known here")
	}
	return r, r.Check()
}

// RulingToAPI converts a rule for users; the caller adds its use.
func RulingToAPI(r Ruling) *apiv1.Standing {
	switch x := r.(type) {
	case *accounting.Account:
		return &apiv1.Standing{Revision: x.Revision, Kind: &apiv1.Standing_Account{Account: &apiv1.Account{
			Name: x.Name, Parent: x.Parent, Shares: x.Shares, Qos: x.QOS, DefaultQos: x.DefaultQOS, Revision: x.Revision,
		}}}
	case *accounting.Member:
		return &apiv1.Standing{Revision: x.Revision, Kind: &apiv1.Standing_Member{Member: &apiv1.AccountUser{
			Account: x.Account, Uid: uint32(x.UID), Name: x.Name, Shares: x.Shares, Default: x.Default, Coordinator: x.Coordinator, Revision: x.Revision,
		}}}
	case *accounting.QOS:
		return &apiv1.Standing{Revision: x.Revision, Kind: &apiv1.Standing_Qos{Qos: &apiv1.QOS{
			Name: x.Name, Priority: x.Priority, Preempts: x.Preempts, Grace: apiconv.ToDuration(x.Grace), Cancel: x.Cancel, Default: x.Default, Revision: x.Revision,
		}}}
	case *accounting.Quota:
		l := &x.Limits
		return &apiv1.Standing{Revision: x.Revision, Kind: &apiv1.Standing_Quota{Quota: &apiv1.Quota{
			Account: x.Subject.Account, Qos: x.Subject.QOS, User: x.Subject.User, Each: x.Subject.Each, Uid: uint32(x.Subject.UID), Name: x.Name, Revision: x.Revision,
			Limits: &apiv1.Limits{GpuMilli: l.GPUMilli, Running: l.Running, Jobs: l.Jobs, GpuTimeUs: int64(l.GPUTime), Period: string(l.Period), MaxTime: apiconv.ToDuration(l.MaxTime), MaxGpus: l.MaxGPUs},
		}}}
	case *accounting.AccountPolicy:
		return &apiv1.Standing{Revision: x.Revision, Kind: &apiv1.Standing_Policy{Policy: &apiv1.AccountPolicy{
			HalfLife: durationpb.New(x.HalfLife), CoreMicro: x.CoreMicro, Require: x.Require, Revision: x.Revision, GpuWeights: weightsToAPI(x.GPUWeights), BySpeed: x.BySpeed,
		}}}
	}
	return nil
}

// RulingFromAPI converts what a client sent and checks it. The error is a
// *cluster.Error of CodeInvalid.
func RulingFromAPI(m *apiv1.Standing) (Ruling, error) {
	var r Ruling
	switch k := m.GetKind().(type) {
	case *apiv1.Standing_Account:
		x := k.Account
		r = &accounting.Account{Name: x.GetName(), Parent: x.GetParent(), Revision: m.Revision, Shares: x.GetShares(), QOS: slices.Compact(slices.Sorted(slices.Values(x.GetQos()))), DefaultQOS: x.GetDefaultQos()}
	case *apiv1.Standing_Member:
		x := k.Member
		r = &accounting.Member{Account: x.GetAccount(), UID: cluster.UID(x.GetUid()), Name: x.GetName(), Revision: m.Revision, Shares: x.GetShares(), Default: x.GetDefault(), Coordinator: x.GetCoordinator()}
	case *apiv1.Standing_Qos:
		x := k.Qos
		r = &accounting.QOS{Name: x.GetName(), Revision: m.Revision, Priority: x.GetPriority(), Preempts: slices.Compact(slices.Sorted(slices.Values(x.GetPreempts()))), Grace: x.GetGrace().AsDuration().Truncate(time.Microsecond), Cancel: x.GetCancel(), Default: x.GetDefault()}
	case *apiv1.Standing_Quota:
		x, l := k.Quota, k.Quota.GetLimits()
		r = &accounting.Quota{
			Subject: accounting.Subject{Account: x.GetAccount(), QOS: x.GetQos(), User: x.GetUser(), Each: x.GetEach(), UID: cluster.UID(x.GetUid())}, Name: x.GetName(), Revision: m.Revision,
			Limits: accounting.Limits{
				GPUMilli: l.GetGpuMilli(), Running: l.GetRunning(), Jobs: l.GetJobs(), GPUTime: cluster.GPUTime(l.GetGpuTimeUs()), Period: accounting.Period(l.GetPeriod()),
				MaxTime: l.GetMaxTime().AsDuration().Truncate(time.Microsecond), MaxGPUs: l.GetMaxGpus(),
			},
		}
	case *apiv1.Standing_Policy:
		x := k.Policy
		r = &accounting.AccountPolicy{Revision: m.Revision, HalfLife: x.GetHalfLife().AsDuration().Truncate(time.Microsecond), CoreMicro: x.GetCoreMicro(), Require: x.GetRequire(), GPUWeights: weightsFrom(x.GetGpuWeights()), BySpeed: x.GetBySpeed()}
	default:
		return nil, cluster.Errorf(cluster.CodeInvalid, "standing: what to set is missing")
	}
	return r, r.Check()
}

// SpentToLog converts what a holder was charged.
func SpentToLog(s *accounting.Spent) *logv1.Spent {
	m := &logv1.Spent{
		Account: s.Holder.Account, Qos: s.Holder.QOS, Uid: uint32(s.Holder.UID), GpuUs: int64(s.GPU), CoreUs: s.Core, DecayedUs: int64(s.Decayed), AtUs: int64(s.At),
	}
	for _, v := range s.In {
		m.InUs = append(m.InUs, int64(v))
	}
	return m
}

// SpentFromLog converts back. A negative amount is an error.
func SpentFromLog(m *logv1.Spent) (*accounting.Spent, error) {
	s := &accounting.Spent{
		Holder: accounting.Holder{Account: m.GetAccount(), QOS: m.GetQos(), UID: cluster.UID(m.GetUid())},
		GPU:    cluster.GPUTime(m.GetGpuUs()), Core: m.GetCoreUs(), Decayed: cluster.GPUTime(m.GetDecayedUs()), At: cluster.Time(m.GetAtUs()),
	}
	if len(m.GetInUs()) != len(s.In) || s.GPU < 0 || s.Core < 0 || s.Decayed < 0 || s.At < 0 {
		return nil, fmt.Errorf("use of %+v is malformed", s.Holder)
	}
	for i, v := range m.GetInUs() {
		if v < 0 {
			return nil, fmt.Errorf("use of %+v is negative", s.Holder)
		}
		s.In[i] = cluster.GPUTime(v)
	}
	return s, nil
}

func weightsToLog(ws []accounting.GPUWeight) (out []*logv1.GPUWeight) {
	for _, w := range ws {
		out = append(out, &logv1.GPUWeight{GpuType: w.GPUType, Milli: w.Milli})
	}
	return out
}

func weightsToAPI(ws []accounting.GPUWeight) (out []*apiv1.GPUWeight) {
	for _, w := range ws {
		out = append(out, &apiv1.GPUWeight{GpuType: w.GPUType, Milli: w.Milli})
	}
	return out
}

// weightsFrom converts back from either form, sorted by type.
func weightsFrom[W interface {
	GetGpuType() string
	GetMilli() int64
}](ws []W) (out []accounting.GPUWeight) {
	for _, w := range ws {
		out = append(out, accounting.GPUWeight{GPUType: w.GetGpuType(), Milli: w.GetMilli()})
	}
	slices.SortFunc(out, func(a, b accounting.GPUWeight) int { return strings.Compare(a.GPUType, b.GPUType) })
	return out
}
