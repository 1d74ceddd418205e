package cluster

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// JobID numbers a job. Ids rise in commit order and are never used again.
// Zero is no job.
type JobID uint64

// String returns the id in decimal, as users type it.
func (id JobID) String() string { return strconv.FormatUint(uint64(id), 10) }

// NodeID names a node. It is bound to the node's certificate at join time and
// follows the rule of CheckName.
type NodeID string

// GPUID is the UUID of a GPU as NVML prints it ("GPU-…"). The index of a card
// may change after a reboot, so it is for display only.
type GPUID string

// UID is a numeric user id, taken from the kernel and never from a client.
type UID uint32

// Token is a fencing token: the Raft index at which an attempt was placed.
// Agents refuse an assignment whose token is not higher than the last they
// saw for the job.
type Token uint64

// AttemptID names one try to run a job.
type AttemptID struct {
	Job JobID
	No  uint32
}

// String returns "j<job>-a<attempt>", which is also the container's id.
func (id AttemptID) String() string { return fmt.Sprintf("j%d-a%d", id.Job, id.No) }

// ParseAttemptID reads what AttemptID.String wrote.
func ParseAttemptID(s string) (AttemptID, error) {
	job, no, ok := strings.Cut(strings.TrimPrefix(s, "j"), "-a")
	if !ok || !strings.HasPrefix(s, "j") {
		return AttemptID{}, fmt.Errorf("attempt id %q is not of the form j<job>-a<attempt>", s)
	}
	j, err := strconv.ParseUint(job, 10, 64)
	if err != nil || j == 0 {
		return AttemptID{}, fmt.Errorf("attempt id %q: bad job number", s)
	}
	n, err := strconv.ParseUint(no, 10, 32)
	if err != nil || n == 0 {
		return AttemptID{}, fmt.Errorf("attempt id %q: bad attempt number", s)
	}
	id := AttemptID{Job: JobID(j), No: uint32(n)}
	if id.String() != s {
		return AttemptID{}, fmt.Errorf("attempt id %q is not in canonical form", s)
	}
	return id, nil
}

// Time is an instant in microseconds since the Unix epoch, UTC. Zero is no
// time. Stored state holds Time and not time.Time so that replicas agree on
// every bit; the leader stamps it into commands.
type Time int64

// TimeOf converts t, rounding down to the microsecond. The zero time.Time
// becomes the zero Time.
func TimeOf(t time.Time) Time {
	if t.IsZero() {
		return 0
	}
	return Time(t.UnixMicro())
}

// Std converts to a time.Time in UTC; the zero Time becomes the zero time.Time.
func (t Time) Std() time.Time {
	if t == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(t)).UTC()
}

// Add returns t shifted by d.
func (t Time) Add(d time.Duration) Time { return t + Time(d.Microseconds()) }

// Sub returns t-u.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t-u) * time.Microsecond }
