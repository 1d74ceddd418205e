package fsm

import (
	"context"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/fsm/accounts"
	"github.com/berth-scheduler/berth/fsm/blobs"
	"github.com/berth-scheduler/berth/fsm/command"
	"github.com/berth-scheduler/berth/fsm/credentials"
	"github.com/berth-scheduler/berth/fsm/jobs"
	"github.com/berth-scheduler/berth/fsm/learned"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// Names that callers use for types of the packages below.
type (
	// Result is the result of one command.
	Result = command.Result
	// CancelOutcome is the effect of a cancel.
	CancelOutcome = command.CancelOutcome
	// Change says that a job or a node changed at an index.
	Change = command.Change
	// TaskCounts says what happened to the array tasks that a command was to
	// change.
	TaskCounts = command.TaskCounts
	// Sample is what one finished attempt contributes to the predictor.
	Sample = learned.Sample
	// Company is the jobs of one signature that an attempt shared its GPUs with.
	Company = learned.Company
	// WeightsVersion is one version of the predictor's weights.
	WeightsVersion = learned.WeightsVersion
	// WeightsState lists the available weights.
	WeightsState = learned.WeightsState
	// Interference is what was learned of co-located jobs.
	Interference = learned.Interference
	// Standing is a copy of the accounts and of their use.
	Standing = accounts.Standing
)

// The outcomes of a cancel.
const (
	NotFound  = command.NotFound
	Cancelled = command.Cancelled
	Finished  = command.Finished // it had already ended
)

// The origins of weights.
const (
	WeightsLearned  = learned.WeightsLearned
	WeightsImport   = learned.WeightsImport
	WeightsRollback = learned.WeightsRollback
	// MaxWeightsReason is how many bytes of a reason are stored.
	MaxWeightsReason = learned.MaxWeightsReason
	// MaxImport bounds the runs of one import.
	MaxImport = learned.MaxImport
	// BulkPart is how many bytes of an environment and script one entry carries.
	BulkPart = blobs.PartBytes
	// EntryCost is the total Cost that commands of one entry may have, unless a
	// single one exceeds it: some ten milliseconds in Apply.
	EntryCost = jobs.EntryCost
)

// Versions of entries that callers check for.
const (
	// NamesBulk is the version of entries from which on specs may name their large
	// parts.
	NamesBulk = command.BulkVersion
	// CredentialVersion is the version of entries from which on attempts have
	// credentials.
	CredentialVersion = 12
	// ClearsDepends is the version of entries from which on a job's dependencies
	// can be cleared: before, it kept waiting for them.
	ClearsDepends = command.ChangeVersion
	// EstimatesAnew is the version of entries from which on the estimates of
	// waiting jobs can be replaced.
	EstimatesAnew = 12
)

// Denied reports whether an identity was removed from the cluster.
func (f CredentialsReader) Denied(role, id string) bool {
	return read(f.held, func(s *State) bool { return s.keyring.Denied(role, id) })
}

// AllDenied returns all denied identities, by role and id.
func (f CredentialsReader) AllDenied() []credentials.Identity {
	return read(f.held, func(s *State) []credentials.Identity { return s.keyring.AllDenied() })
}

// TokenFits reports whether a join token with this hash would be accepted now for
// the daemon id. It changes nothing; only using the token spends it. The comparison
// takes constant time.
func (f CredentialsReader) TokenFits(hash []byte, id string, now cluster.Time) bool {
	return read(f.held, func(s *State) bool { return s.keyring.Fits(hash, id, max(now, s.at.Now)) })
}

// Weights returns the predictor's published weights; version 0 is none.
func (f LearnedReader) Weights() (version uint64, blob []byte) {
	return read2(f.held, func(s *State) (uint64, []byte) { return s.learned.InUse() })
}

// WeightsState returns the versions of the weights and whether one is pinned.
func (f LearnedReader) WeightsState() WeightsState {
	return read(f.held, func(s *State) WeightsState { return s.learned.Weights() })
}

// Interference returns what was learned of co-located jobs.
func (f LearnedReader) Interference() Interference {
	return read(f.held, func(s *State) Interference { return s.learned.Interference() })
}

// Samples returns the samples of finished attempts, oldest first.
func (f LearnedReader) Samples() []Sample {
	return read(f.held, func(s *State) []Sample { return slices.Clone(s.learned.Samples()) })
}

// NewestSamples returns at most n of the newest samples, oldest first.
func (f LearnedReader) NewestSamples(n int) []Sample {
	return read(f.held, func(s *State) []Sample {
		all := s.learned.Samples()
		return slices.Clone(all[max(0, len(all)-n):])
	})
}

// SampleCount returns how many samples are held.
func (f LearnedReader) SampleCount() int {
	return read(f.held, func(s *State) int { return len(s.learned.Samples()) })
}

// SampleSeq returns the number of the newest sample.
func (f LearnedReader) SampleSeq() uint64 {
	return read(f.held, func(s *State) uint64 { return s.learned.Seq() })
}

// HasBulk reports whether jobs may name an environment and script by their hash.
func (f JobsReader) HasBulk(sum blobs.Sum) bool {
	return read(f.held, func(s *State) bool { return s.blobs.Of(s.at.Now, sum) != nil })
}

// UserBytes returns the spec bytes of a user's waiting and running jobs, including
// uploads for future ones, and those of all users. more is how many bytes the specs
// in next would add.
func (f JobsReader) UserBytes(uid cluster.UID, next []*cluster.Job) (user, all, more int64) {
	w := blobs.WeightOf(next) // without the lock
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.st.blobs.Bytes(uid, w)
}

// Notices returns at most limit unsent notices, oldest first, after the one with
// seq after. The caller must not modify them.
func (f NoticesReader) Notices(after uint64, limit int) []*logv1.Notice {
	return read(f.held, func(s *State) []*logv1.Notice { return s.outbox.Waiting(after, limit) })
}

// Webhooks returns the webhooks, by id, and the counts of all notices. The caller
// must not modify them; they hold their secrets.
func (f NoticesReader) Webhooks() ([]*logv1.Webhook, *logv1.Telling) {
	return read2(f.held, func(s *State) ([]*logv1.Webhook, *logv1.Telling) { return s.outbox.Webhooks() })
}

// DeadNotices returns the newest notices that were given up, oldest first.
func (f NoticesReader) DeadNotices() []*logv1.DeadNotice {
	return read(f.held, func(s *State) []*logv1.DeadNotice { return s.outbox.Dead() })
}

// WaitNotices returns once a notice with a seq beyond after waits, or with ctx's
// error.
func (f *FSM) WaitNotices(ctx context.Context, after uint64) error {
	for {
		f.mu.RLock()
		index, found := f.st.at.Index, f.st.outbox.Beyond(after)
		f.mu.RUnlock()
		if found {
			return nil
		}
		if err := f.WaitChange(ctx, index); err != nil {
			return err
		}
	}
}

// UserJobs returns how many jobs of a user wait or run.
func (f AccountsReader) UserJobs(uid cluster.UID) int {
	return read(f.held, func(s *State) int { return s.books.JobsOf(uid) })
}

// StandingRevision returns a number that changes whenever accounts or their users
// do.
func (f AccountsReader) StandingRevision() uint64 {
	return read(f.held, func(s *State) uint64 { return s.books.Revision() })
}

// HasAccounts reports whether there are accounts, and qualities of service.
func (f AccountsReader) HasAccounts() (accounts, qos bool) {
	return read2(f.held, func(s *State) (bool, bool) { return s.books.Any() })
}

// AccountsFrom returns an account and its ancestors, nearest first; none for "".
func (f AccountsReader) AccountsFrom(name string) []string {
	return read(f.held, func(s *State) []string { return s.books.Above(name) })
}

// AccountPolicy returns the settings common to all accounts.
func (f AccountsReader) AccountPolicy() accounting.AccountPolicy {
	return read(f.held, func(s *State) accounting.AccountPolicy { return *s.books.Policy() })
}

// Coordinates reports whether a user is a coordinator of an account or of one of
// its ancestors.
func (f AccountsReader) Coordinates(uid cluster.UID, account string) bool {
	return read(f.held, func(s *State) bool { return s.books.Coordinates(uid, account) })
}

// EnterStanding sets the account and the quality of service that a user's job runs
// under, and the time limit of a quota if the job asks for none, or refuses it. If
// there are no accounts, or no QOS, the job keeps the name it gives, without
// effect. An administrator may charge any account.
func (f AccountsReader) EnterStanding(who cluster.Owner, admin bool, spec *cluster.Spec) *cluster.Error {
	limited := false
	err := read(f.held, func(s *State) *cluster.Error {
		limited = s.books.Limited()
		return s.books.EnterNames(who, admin, spec)
	})
	if err != nil || !limited {
		return err
	}
	f.mu.Lock() // a limiter remembers each holder it is asked about
	defer f.mu.Unlock()
	return f.st.books.EnterLimits(who, spec)
}

// EachUse calls fn with each user's decayed use at now, or at the last entry if
// that is later, including running attempts; one user may come several times.
func (f AccountsReader) EachUse(now cluster.Time, fn func(accounting.Assoc, cluster.GPUTime)) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	s := f.st
	now = max(now, s.at.Now)
	s.books.EachSpent(now, func(h accounting.Holder, left cluster.GPUTime) {
		fn(accounting.Assoc{Account: h.Account, UID: h.UID}, left)
	})
	p := s.books.Policy()
	for _, j := range s.roll.Running() {
		if a := j.Live(); a != nil {
			fn(accounting.Assoc{Account: j.Spec.Account, UID: j.Owner.UID}, accounting.LeftOf(a, j.Estimates, now, p))
		}
	}
}

// Standing returns a copy of the accounts as of now, or of the last entry if that
// is later.
func (f AccountsReader) Standing(now cluster.Time) *Standing {
	return read(f.held, func(s *State) *Standing { return s.books.Standing(max(now, s.at.Now)) })
}
