package slurm

import (
	"cmp"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/cmd/internal/slurm/text"
)

// Formats of squeue's tables.
const (
	queueFormat = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
	queueLong   = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
	queueAll    = "%a|%b|%c|%d|%e|%f|%g|%h|%i|%j|%k|%l|%m|%n|%o|%p|%q|%r|%s|%t|%u|%v|%w|%x|%y|%z|%A|%B|%C|%D|%E|%F|%G|%H|%I|%J|%K|%L|%M|%N|%O|%P|%Q|%R|%S|%T|%U|%V|%W|%X|%Y|%Z"
	queueStart  = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R"
)

// Squeue holds the options of squeue.
type Squeue struct {
	// Format is that of -o, Fields that of -O; if both are "", a table of
	// Slurm's is used.
	Format, Fields string
	// Long, Start and NoHead are -l, --start and -h.
	Long, Start, NoHead bool
	// Sort is that of -S; "" is Slurm's default.
	Sort string
	// Jobs, Users, Names, Partitions, Nodes and States select; empty means all.
	// States holds names or codes, in capitals, or "ALL".
	Jobs                                    []uint64
	Users, Names, Partitions, Nodes, States []string
	Accounts, QOS, Reservations             []string
	// Nothing selects no job.
	Nothing bool
	// NoConvert writes memory in MiB.
	NoConvert bool
}

// Print writes the jobs as squeue does at the time now. The error is for a
// format or an order that names no field; then nothing was written.
func (q *Squeue) Print(w io.Writer, jobs []Job, now time.Time) error {
	l, err := q.layout()
	if err != nil {
		return err
	}
	order, err := sortKeys(cmp.Or(q.Sort, q.ownSort()))
	if err != nil {
		return err
	}
	rows := make([]*Job, 0, len(jobs))
	for i := range jobs {
		if q.Wants(&jobs[i]) {
			rows = append(rows, &jobs[i])
		}
	}
	slices.SortStableFunc(rows, order)
	l.Fit(len(rows), func(i int) *Job { return rows[i] }, 0)
	var b []byte
	if q.Long && !q.NoHead {
		b = now.AppendFormat(b, "Mon Jan 02 15:04:05 2006\n")
	}
	if !q.NoHead {
		b = append(append(b, l.Heads()...), '\n')
	}
	for _, j := range rows {
		if b = append(l.AppendRow(b, j), '\n'); len(b) >= chunk {
			if _, err := w.Write(b); err != nil {
				return err
			}
			b = b[:0]
		}
	}
	_, err = w.Write(b)
	return err
}

// chunk is how many bytes of a table are written at once.
const chunk = 64 << 10

// ShowsFiles reports whether a column shows the names of a job's script and
// files, or where it may run, which is costlier to request than all else.
func (q *Squeue) ShowsFiles() bool {
	l, err := q.layout()
	files := []string{"command", "comment", "workdir", "stdin", "stdout", "stderr", "feature", "excnodes", "reservation", "oversubscribe"}
	return err != nil || slices.ContainsFunc(files, func(name string) bool { return l.Shows(jobFields()[name].Head) })
}

// ShowsStarts reports whether a column shows when jobs start or end.
func (q *Squeue) ShowsStarts() bool {
	l, err := q.layout()
	return err == nil && l.Shows(jobFields()["starttime"].Head, jobFields()["endtime"].Head)
}

func (q *Squeue) ownSort() string {
	if q.Start {
		return "S"
	}
	return "P,t,-p"
}

func (q *Squeue) layout() (text.Table[Job], error) {
	var l text.Table[Job]
	switch {
	case q.Fields != "":
		l = text.ByName(q.Fields, jobFields())
	case strings.EqualFold(q.Format, "%all"):
		l = text.ByLetter(queueAll, jobLetters())
	case q.Format != "":
		l = text.ByLetter(q.Format, jobLetters())
	case q.Start:
		l = text.ByLetter(queueStart, jobLetters())
	case q.Long:
		l = text.ByLetter(queueLong, jobLetters())
	default:
		l = text.ByLetter(queueFormat, jobLetters())
	}
	if q.NoConvert {
		l.Put(jobFields()["minmemory"].Head, func(j *Job) string { return text.Mib(j.MinMemMiB) })
	}
	return l, l.Err("job")
}

// Wants reports whether a job is selected. Without states, jobs that have
// not ended are, as with Slurm.
func (q *Squeue) Wants(j *Job) bool {
	if q.Nothing || q.Start && !j.waiting() {
		return false
	}
	switch {
	case slices.Contains(q.States, "ALL"):
	case len(q.States) > 0:
		if !slices.Contains(q.States, j.State) && !slices.Contains(q.States, j.Code) {
			return false
		}
	case j.over():
		return false
	}
	one := func(among []string, v string) bool { return len(among) == 0 || slices.Contains(among, v) }
	return (len(q.Jobs) == 0 || slices.Contains(q.Jobs, j.ID) || j.ArrayID != 0) && // the coordinator sent only the requested tasks of arrays

		(one(q.Users, j.User) || slices.Contains(q.Users, strconv.FormatUint(uint64(j.UID), 10))) &&
		one(q.Names, j.Name) && one(q.Partitions, j.Partition) && j.OnSome(q.Nodes) &&
		one(q.Accounts, j.Account) && one(q.QOS, j.QOS) && one(q.Reservations, j.Reservation)
}

// OnSome reports whether it is on one of some nodes, if any are named.
func (j *Job) OnSome(nodes []string) bool {
	if len(nodes) == 0 {
		return true
	}
	on, err := Unfold(j.NodeList)
	return err == nil && slices.ContainsFunc(on, func(n string) bool { return slices.Contains(nodes, n) })
}

// stateOrder lists the codes of states in the order in which Slurm sorts
// them: by number.
var stateOrder = []string{"PD", "R", "S", "CD", "CA", "F", "TO", "NF", "PR", "BF", "DL", "OOM", "CF", "CG"}

// sortKeys reads an order: letters of -o separated by commas, each with an
// optional + or - before it.
func sortKeys(spec string) (func(a, b *Job) int, error) {
	type key struct {
		by  func(a, b *Job) int
		dir int
	}
	var keys []key
	for _, field := range strings.Split(spec, ",") {
		k := key{dir: 1}
		name := strings.TrimLeft(field, "+-")
		if strings.HasPrefix(field, "-") {
			k.dir = -1
		}
		if len(name) != 1 {
			return nil, text.Message("Invalid sort specification: " + field)
		}
		col, ok := jobLetters()[name[0]]
		switch {
		case !ok:
			return nil, text.Message("Invalid sort specification: " + field)
		case name == "i":
			k.by = byArray
		case name == "A":
			k.by = func(a, b *Job) int { return cmp.Compare(a.ID, b.ID) }
		case name == "F":
			k.by = func(a, b *Job) int { return cmp.Compare(cmp.Or(a.ArrayID, a.ID), cmp.Or(b.ArrayID, b.ID)) }
		case name == "p" || name == "Q":
			k.by = func(a, b *Job) int { return cmp.Compare(a.Priority, b.Priority) }
		case name == "t" || name == "T":
			k.by = func(a, b *Job) int {
				return cmp.Compare(slices.Index(stateOrder, a.Code), slices.Index(stateOrder, b.Code))
			}
		case name == "M":
			k.by = func(a, b *Job) int { return cmp.Compare(a.Ran, b.Ran) }
		case name == "l":
			k.by = func(a, b *Job) int { return cmp.Compare(limitOr(a), limitOr(b)) }
		case name == "S":
			k.by = func(a, b *Job) int { return cmp.Compare(begins(a), begins(b)) }
		case name == "V":
			k.by = func(a, b *Job) int { return a.Submitted.Compare(b.Submitted) }
		default:
			k.by = func(a, b *Job) int { return cmp.Compare(col.Value(a), col.Value(b)) }
		}
		keys = append(keys, k)
	}
	return func(a, b *Job) int {
		for _, k := range keys {
			if c := k.by(a, b); c != 0 {
				return k.dir * c
			}
		}
		return cmp.Compare(a.ID, b.ID)
	}, nil
}

// begins returns when a job starts, such that unknown starts sort last.
func begins(j *Job) int64 {
	switch {
	case !j.Started.IsZero():
		return j.Started.Unix()
	case !j.Expected.IsZero():
		return j.Expected.Unix()
	}
	return 1<<63 - 1
}

func limitOr(j *Job) time.Duration {
	return cmp.Or(j.Limit, 1<<63-1)
}
