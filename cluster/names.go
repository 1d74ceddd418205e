package cluster

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Code classifies errors in terms that a user can act on.
type Code uint8

// The classes of Error.
const (
	CodeInternal        Code = iota // a fault of Berth's; users see no detail
	CodeInvalid                     // the request can never be right
	CodeNotFound                    // there is no such object
	CodeAlreadyExists               // the request id was used for another request
	CodeDenied                      // the caller may not do this
	CodeUnauthenticated             // the caller's identity is unknown
	CodeConflict                    // the object is not in the state that the request needs
	CodeExhausted                   // a limit is reached; it may work later
	CodeUnavailable                 // certainly not done; retrying is safe
	CodeUnknown                     // may or may not have been done; ask with the same request id
	CodeOutOfRange                  // a position that no longer exists, or not yet
)

// String returns the code in lower case.
func (c Code) String() string {
	names := [...]string{"internal", "invalid", "not found", "already exists", "denied",
		"unauthenticated", "conflict", "exhausted", "unavailable", "unknown outcome", "out of range"}
	if int(c) < len(names) {
		return names[c]
	}
	return "internal"
}

// Error is an error that a user may see: Msg says what is wrong, where, what is
// allowed and what to do next.
type Error struct {
	Code Code
	Msg  string
	Err  error // cause, for the operator's log; may be nil
}

// Error implements error.
func (e *Error) Error() string {
	if e.Err != nil {
		return e.Msg + ": " + e.Err.Error()
	}
	return e.Msg
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an Error of the given class.
func Errorf(c Code, format string, args ...any) *Error {
	return &Error{Code: c, Msg: fmt.Sprintf(format, args...)}
}

// Limits on what a user may ask for, checked by Spec.Check.
const (
	MaxNameLen    = 63
	MaxArgs       = 1024
	MaxArgBytes   = 32 << 10
	MaxEnv        = 256
	MaxEnvLine    = 4 << 10
	MaxPathLen    = 4096
	MaxGPUsPerJob = 16
	MaxMemMiB     = 8 << 20 // 8 TiB
	MaxFeatures   = 4 << 10
	// MaxScript bounds a batch script, MaxPackedScript its stored form.
	MaxScript       = 4 << 20
	MaxPackedScript = 512 << 10
	MaxTimeDays     = 30
)

// CheckName reports whether s may name a node, a coordinator or a cluster:
// 1–63 characters of a–z, 0–9, '.', '_' and '-', the first a letter or digit.
func CheckName(what, s string) error {
	if s == "" || len(s) > MaxNameLen {
		return Errorf(CodeInvalid, "%s %s: must have 1 to %d characters", what, QuoteShort(s), MaxNameLen)
	}
	for i, c := range []byte(s) {
		alnum := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || c != '.' && c != '_' && c != '-') {
			return Errorf(CodeInvalid, "%s %q: may hold a-z, 0-9, '.', '_' and '-' and must begin with a letter or digit", what, s)
		}
	}
	return nil
}

// CheckJobName reports whether s may name a job: 1–63 bytes of printable UTF-8
// without slash, and not beginning with '-' or '.'. The name becomes part of output
// paths and of listings on terminals.
func CheckJobName(s string) error {
	if s == "" || len(s) > MaxNameLen {
		return Errorf(CodeInvalid, "name %s: must have 1 to %d bytes", QuoteShort(s), MaxNameLen)
	}
	if s[0] == '-' || s[0] == '.' {
		return Errorf(CodeInvalid, "name %q: may not begin with '-' or '.'", s)
	}
	if !utf8.ValidString(s) {
		return Errorf(CodeInvalid, "name %q: is not UTF-8", s)
	}
	for _, r := range s {
		if r == '/' || !unicode.IsGraphic(r) {
			return Errorf(CodeInvalid, "name %q: may not hold %q; use printable characters without '/'", s, r)
		}
	}
	return nil
}

// QuoteShort quotes user input, at most 32 bytes of it.
func QuoteShort(s string) string {
	if len(s) > 32 {
		return fmt.Sprintf("%q… (%d bytes)", s[:32], len(s))
	}
	return fmt.Sprintf("%q", s)
}

// CheckReservationName reports whether s may name a reservation; the rules are
// those of partitions.
func CheckReservationName(s string) error {
	if err := CheckPartitionName(s); err != nil {
		return Errorf(CodeInvalid, "reservation %s", strings.TrimPrefix(err.Error(), "partition "))
	}
	return nil
}

// ClipText cuts s to n bytes of valid UTF-8.
func ClipText(s string, n int) string {
	s = strings.ToValidUTF8(s, "?")
	for len(s) > n || !utf8.ValidString(s) {
		s = s[:min(n, len(s)-1)]
	}
	return s
}

// EditDistance returns how many bytes must be inserted, deleted or changed to turn
// a into b. It takes time proportional to the product of their lengths.
func EditDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diag
			if a[i] != b[j] {
				cost++
			}
			diag = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// LongerLimit reports whether time limit a is longer than b; 0 is no limit.
func LongerLimit(a, b time.Duration) bool { return b != 0 && (a == 0 || a > b) }

// LimitText formats a time limit for messages; 0 is none.
func LimitText(d time.Duration) string {
	if d > 0 {
		return TimeText(d)
	}
	return "none"
}

// MemText formats MiB for messages: 23.4 GiB, 512 MiB, 1.5 TiB.
func MemText(mib int64) string {
	switch {
	case mib < 1<<10:
		return strconv.FormatInt(mib, 10) + " MiB"
	case mib < 1<<20:
		return strconv.FormatFloat(float64(mib)/(1<<10), 'f', 1, 64) + " GiB"
	}
	return strconv.FormatFloat(float64(mib)/(1<<20), 'f', 1, 64) + " TiB"
}

// MemTexts formats two amounts that a message compares, in MiB if they would
// otherwise look equal.
func MemTexts(a, b int64) (string, string) {
	x, y := MemText(a), MemText(b)
	if x == y && a != b {
		return strconv.FormatInt(a, 10) + " MiB", strconv.FormatInt(b, 10) + " MiB"
	}
	return x, y
}

// TimeText formats a span for messages, as people type one: 3d, 1d12h, 1h30m, 90s
// as 1m30s.
func TimeText(d time.Duration) string {
	const day = 24 * time.Hour
	switch days, rest := d/day, d%day; {
	case days <= 0:
		return short(d)
	case rest == 0:
		return fmt.Sprintf("%dd", days)
	default:
		return fmt.Sprintf("%dd%s", days, short(rest))
	}
}

// short formats a span without needless zeros.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// JobID numbers a job. Ids rise in commit order and are never reused. Zero is no
// job.
type JobID uint64

// String returns the id in decimal, as users type it.
func (id JobID) String() string { return strconv.FormatUint(uint64(id), 10) }

// NodeID names a node. It is bound to the node's certificate at join time and
// follows the rule of CheckName.
type NodeID string

// GPUID is the UUID of a GPU as NVML prints it ("GPU-…"). A GPU's index may change
// after a reboot, so it is for display only.
type GPUID string

// UID is a numeric user id, taken from the kernel and never from a client.
type UID uint32

// Token is a fencing token: the Raft index at which an attempt was placed. Agents
// refuse an assignment whose token is not higher than the last they saw for the
// job.
type Token uint64

// AttemptID names one try to run a job.
type AttemptID struct {
	Job JobID
	No  uint32
}

// String returns "j<job>-a<attempt>", which is also the container's id.
func (id AttemptID) String() string { return fmt.Sprintf("j%d-a%d", id.Job, id.No) }

// ParseAttemptID parses the result of AttemptID.String.
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

// LastTime is the latest time that users may name, 2200-01-01. A time.Duration
// holds 292 years, so it can span any time since 1970 to this one.
const LastTime Time = 7_258_118_400_000_000

// Add returns t shifted by d.
func (t Time) Add(d time.Duration) Time { return t + Time(d.Microseconds()) }

// Sub returns t-u.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t-u) * time.Microsecond }
