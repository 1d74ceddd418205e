package dispatch

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/cluster"
)

// Repeat is how often a reservation recurs.
type Repeat string

// The ways to repeat; a day is 24 hours of UTC.
const (
	RepeatNever  Repeat = ""
	RepeatDaily  Repeat = "daily"
	RepeatWeekly Repeat = "weekly"
)

// every returns the time from one window to the next, 0 for never.
func (r Repeat) every() time.Duration {
	switch r {
	case RepeatDaily:
		return 24 * time.Hour
	case RepeatWeekly:
		return 7 * 24 * time.Hour
	}
	return 0
}

// Reservation reserves nodes, or single GPUs, for some jobs or for none, for a
// period of time. Values are immutable.
type Reservation struct {
	Name string
	// Revision is the Raft index of the last change.
	Revision uint64
	// Start is when its first window begins, Duration the length of each.
	Start    cluster.Time
	Duration time.Duration
	Repeat   Repeat
	// Nodes lists the reserved nodes; if GPUs, which is sorted, is not empty, only
	// those GPUs of them are reserved, and nothing else.
	Nodes cluster.HostList
	GPUs  []cluster.GPUID
	// Users, by name or number, and Accounts say whose jobs may run inside. If both
	// are empty, only administrators' may.
	Users, Accounts []string
	// Maint means maintenance: the reservation may overlap others.
	Maint bool
	// Features are the features that the nodes were chosen for, "" for none; for
	// display.
	Features string
	Comment  string
}

// Bounds of reservations.
const (
	MaxReservations       = 256
	maxReserved           = 4096 // GPUs listed individually
	maxAllowed            = 1024 // users, and accounts
	maxReservationComment = 1024
)

// Check reports whether r is valid. The error is an *Error of CodeInvalid that
// names the field.
func (r *Reservation) Check() error {
	if err := cluster.CheckReservationName(r.Name); err != nil {
		return err
	}
	const most = cluster.MaxTimeDays * 24 * time.Hour
	switch every := r.Repeat.every(); {
	case r.Nodes.String() == "":
		return cluster.Errorf(cluster.CodeInvalid, "nodes: are missing; give a host list such as gpu[01-04],n7, or %s", cluster.AllNodes)
	case r.Start <= 0 || r.Start > math.MaxInt64/4:
		return cluster.Errorf(cluster.CodeInvalid, "start: is missing, or is before 1970")
	case r.Duration < time.Second || r.Duration > most:
		return cluster.Errorf(cluster.CodeInvalid, "duration: %s is outside 1 s to %d days", cluster.TimeText(r.Duration), cluster.MaxTimeDays)
	case r.Repeat != RepeatNever && every == 0:
		return cluster.Errorf(cluster.CodeInvalid, "repeat %s: must be %s or %s", cluster.QuoteShort(string(r.Repeat)), RepeatDaily, RepeatWeekly)
	case every > 0 && r.Duration > every:
		return cluster.Errorf(cluster.CodeInvalid, "duration: %s is longer than the time from one window to the next, %s", cluster.TimeText(r.Duration), cluster.TimeText(every))
	case len(r.GPUs) > maxReserved:
		return cluster.Errorf(cluster.CodeInvalid, "gpus: %d of them, at most %d are allowed", len(r.GPUs), maxReserved)
	case len(r.Comment) > maxReservationComment:
		return cluster.Errorf(cluster.CodeInvalid, "comment: %d bytes, at most %d are allowed", len(r.Comment), maxReservationComment)
	}
	for i, g := range r.GPUs {
		if g == "" || len(g) > cluster.MaxNameLen || i > 0 && r.GPUs[i-1] >= g {
			return cluster.Errorf(cluster.CodeInvalid, "gpus: %s is out of order, named twice, or not an id", cluster.QuoteShort(string(g)))
		}
	}
	for _, list := range []struct {
		field string
		names []string
	}{{"users", r.Users}, {"accounts", r.Accounts}} {
		if len(list.names) > maxAllowed {
			return cluster.Errorf(cluster.CodeInvalid, "%s: %d of them, at most %d are allowed", list.field, len(list.names), maxAllowed)
		}
		for _, s := range list.names {
			if s == "" || len(s) > cluster.MaxNameLen || strings.ContainsAny(s, ", \t\n") {
				return cluster.Errorf(cluster.CodeInvalid, "%s: %s must have 1 to %d characters, none of them a space or comma", list.field, cluster.QuoteShort(s), cluster.MaxNameLen)
			}
		}
	}
	return nil
}

// End returns the end of its first window.
func (r *Reservation) End() cluster.Time { return r.Start.Add(r.Duration) }

// Window returns the window that is open at now, or the next one; ok is false if
// none is left.
func (r *Reservation) Window(now cluster.Time) (start, end cluster.Time, ok bool) {
	start, end = r.Start, r.End()
	if end > now {
		return start, end, true
	}
	every := r.Repeat.every()
	if every == 0 {
		return start, end, false
	}
	n := now.Sub(end)/every + 1
	return start.Add(n * every), end.Add(n * every), true
}

// Active reports whether a window is open.
func (r *Reservation) Active(now cluster.Time) bool {
	start, _, ok := r.Window(now)
	return ok && start <= now
}

// Covers reports whether a GPU belongs to it, or with gpu "" whether anything on
// the node does.
func (r *Reservation) Covers(node cluster.NodeID, gpu cluster.GPUID) bool {
	if !r.Nodes.Holds(node) {
		return false
	}
	if len(r.GPUs) == 0 || gpu == "" {
		return true
	}
	_, ok := slices.BinarySearch(r.GPUs, gpu)
	return ok
}

// Of returns those of nodes that belong to it, with none but its GPUs.
func (r *Reservation) Of(nodes []*cluster.Node) (out []*cluster.Node) {
	for _, n := range nodes {
		if r.Covers(n.ID, "") {
			part := *n
			part.GPUs = slices.DeleteFunc(slices.Clone(n.GPUs), func(g cluster.GPU) bool { return !r.Covers(n.ID, g.ID) })
			out = append(out, &part)
		}
	}
	return out
}

// CoversNode reports whether it reserves a node as a whole.
func (r *Reservation) CoversNode(node cluster.NodeID) bool {
	return len(r.GPUs) == 0 && r.Nodes.Holds(node)
}

// Admits reports whether a job of an owner and account may run inside.
func (r *Reservation) Admits(o *cluster.Owner, account string) bool {
	if len(r.Users)+len(r.Accounts) == 0 {
		return o.UID == 0
	}
	return slices.Contains(r.Users, o.Name) || slices.Contains(r.Users, strconv.FormatUint(uint64(o.UID), 10)) ||
		account != "" && slices.Contains(r.Accounts, account)
}

// Who returns whose jobs may run inside, for display.
func (r *Reservation) Who() string {
	switch {
	case len(r.Users)+len(r.Accounts) == 0 && r.Maint:
		return "it is for maintenance"
	case len(r.Users)+len(r.Accounts) == 0:
		return "only administrators may"
	case len(r.Accounts) == 0:
		return "it is for " + strings.Join(r.Users, ", ")
	case len(r.Users) == 0:
		return "it is for the accounts " + strings.Join(r.Accounts, ", ")
	}
	return "it is for " + strings.Join(r.Users, ", ") + " and the accounts " + strings.Join(r.Accounts, ", ")
}

// Bars reports whether r keeps a job that starts now from a GPU, or with gpu ""
// from the cores of a node: it is open, or opens before the job's latest end, and
// is not the job's own. It returns when the window begins.
func (r *Reservation) Bars(j *cluster.Job, node cluster.NodeID, gpu cluster.GPUID, now, end cluster.Time) (cluster.Time, bool) {
	if r.Name == j.Spec.Where.InReservation() || gpu == "" && !r.CoversNode(node) || gpu != "" && !r.Covers(node, gpu) {
		return 0, false
	}
	start, _, ok := r.Window(now)
	return start, ok && start < end
}

// Reservations are the reservations of a cluster, sorted by name.
type Reservations []*Reservation

// Get returns the named reservation, or nil.
func (rs Reservations) Get(name string) *Reservation {
	for _, r := range rs {
		if r.Name == name {
			return r
		}
	}
	return nil
}

// Next returns the earliest time after now at which a window begins or ends, 0 for
// never.
func (rs Reservations) Next(now cluster.Time) (at cluster.Time) {
	for _, r := range rs {
		start, end, ok := r.Window(now)
		if !ok {
			continue
		}
		if start <= now {
			start = end
		}
		if at == 0 || start < at {
			at = start
		}
	}
	return at
}

// Outside returns why a job may not run anywhere now: the reservation that it asks
// for does not exist, is not open, or does not admit it. The zero Reason means that
// it may.
func (rs Reservations) Outside(j *cluster.Job, now cluster.Time) cluster.Reason {
	name := j.Spec.Where.InReservation()
	if name == "" {
		return cluster.Reason{}
	}
	r := rs.Get(name)
	if r == nil {
		return cluster.Reason{Code: cluster.ReasonReservationGone, Detail: fmt.Sprintf("reservation %s is not there any more; change the job's (berth update) or cancel it", name)}
	}
	start, _, ok := r.Window(now)
	switch {
	case !ok:
		return cluster.Reason{Code: cluster.ReasonReservationGone, Detail: fmt.Sprintf("reservation %s ended at %s; change the job's (berth update) or cancel it", name, clock(r.End()))}
	case !r.Admits(&j.Owner, j.Spec.Account):
		return cluster.Reason{Code: cluster.ReasonReservationDenied, Detail: fmt.Sprintf("reservation %s is not for %s; %s", name, j.Owner.Name, r.Who())}
	case start > now:
		return cluster.Reason{Code: cluster.ReasonReservation, Detail: fmt.Sprintf("reservation %s begins at %s", name, clock(start))}
	}
	return cluster.Reason{}
}

// Keeps returns why a job that starts now may not use a berth, the zero Reason if
// it may. Outside must be called first.
func (rs Reservations) Keeps(j *cluster.Job, b *cluster.Berth, now cluster.Time) cluster.Reason {
	if len(rs) == 0 {
		return cluster.Reason{}
	}
	end, own := j.LatestEnd(now), rs.Get(j.Spec.Where.InReservation())
	for _, r := range rs {
		if start, bars := r.BarsBerth(j, b, now, end); bars {
			return cluster.Reason{Code: cluster.ReasonReservation, Detail: r.words(start, now)}
		}
	}
	switch {
	case own == nil:
	case !own.Covers(b.Node, ""):
		return cluster.Reason{Code: cluster.ReasonReservation, Detail: "it is not of reservation " + own.Name}
	default:
		for _, g := range b.GPUs {
			if !own.Covers(b.Node, g.GPU) {
				return cluster.Reason{Code: cluster.ReasonReservation, Detail: fmt.Sprintf("GPU %s is not of reservation %s", g.GPU, own.Name)}
			}
		}
	}
	return cluster.Reason{}
}

// BarsBerth is like Bars for all that a job would take of a node.
func (r *Reservation) BarsBerth(j *cluster.Job, b *cluster.Berth, now, end cluster.Time) (cluster.Time, bool) {
	if start, bars := r.Bars(j, b.Node, "", now, end); bars {
		return start, true
	}
	for _, g := range b.GPUs {
		if start, bars := r.Bars(j, b.Node, g.GPU, now, end); bars {
			return start, true
		}
	}
	return 0, false
}

// words names the reservation that stands in the way.
func (r *Reservation) words(start, now cluster.Time) string {
	kind := "reservation"
	if r.Maint {
		kind = "maintenance"
	}
	if start > now {
		return fmt.Sprintf("%s %s begins at %s, before the job would have to end", kind, r.Name, clock(start))
	}
	_, end, _ := r.Window(now)
	return fmt.Sprintf("%s %s holds it until %s", kind, r.Name, clock(end))
}

func clock(t cluster.Time) string { return t.Std().UTC().Format("2006-01-02 15:04:05 MST") }
