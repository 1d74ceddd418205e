package fsm

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
)

// book is an environment and script as somebody brought it, in leaves.
type book struct {
	title  string
	spec   *cluster.Spec
	kept   *cluster.Spec // the same with what is large apart, whose hash is taken once
	bytes  int64
	leaves [][]byte
}

// stack is leaves of a book that lie on the counter until a job comes for it.
type stack struct {
	book *book
	by   cluster.UID
	at   cluster.Time
	have map[int]bool
	torn bool // one of them is of another book
}

func (s *stack) whole() bool { return len(s.have) == len(s.book.leaves) }

// loan is a job that has not ended, with the book that it has, if any.
type loan struct {
	id   cluster.JobID
	by   cluster.UID
	spec *cluster.Spec
	book *book
}

// library keeps what is large of jobs. It never looks anything up: it goes through the
// counter and through the loans.
type library struct {
	t       *rapid.T
	m       *machine
	books   []*book
	counter []*stack
	loans   []*loan
	rids    int
}

func (l *library) draw(what string, n int) int { return rapid.IntRange(0, n-1).Draw(l.t, what) }

func (l *library) someone() cluster.UID { return cluster.UID(1000 + l.draw("who", 2)) }

func (l *library) some() *book { return l.books[l.draw("book", len(l.books))] }

// stackOf is what lies on the counter of a book, and is not too old at a time.
func (l *library) stackOf(b *book, now cluster.Time) *stack {
	for _, s := range l.counter {
		if s.book == b && now.Sub(s.at) <= time.Minute {
			return s
		}
	}
	return nil
}

func (l *library) has(b *book, now cluster.Time) bool {
	for _, x := range l.loans {
		if x.book == b {
			return true
		}
	}
	s := l.stackOf(b, now)
	return s != nil && s.whole()
}

// tidy takes from the counter what is too old.
func (l *library) tidy() {
	l.counter = slices.DeleteFunc(l.counter, func(s *stack) bool { return l.m.now.Sub(s.at) > time.Minute })
}

// brings lays a leaf on the counter: the right one, or one of as many bytes.
func (l *library) brings() {
	b, who := l.some(), l.someone()
	k := l.draw("leaf", len(b.leaves))
	torn := l.draw("torn", 8) == 0
	now := l.m.now.Add(time.Second)
	cmd := partsCmds(who, b.spec.Env, nil)[k]
	if torn {
		cmd.GetPutBulk().Data = slices.Clone(cmd.GetPutBulk().Data)
		cmd.GetPutBulk().Data[0] ^= 0xff
	}
	s, had, hash := l.stackOf(b, now), l.has(b, now), entitiesHash(l.m.f)
	r := l.m.do(cmd)[0]
	same := hash == entitiesHash(l.m.f)
	switch {
	case had, s != nil && s.have[k]:
		if r.Err != nil || !r.Existing || !same {
			l.t.Fatalf("leaf %d of %s is there: %+v, changed %t", k, b.title, r, !same)
		}
		return
	case len(b.leaves) == 1 && torn, s != nil && len(s.have) == len(b.leaves)-1 && (s.torn || torn):
		if r.Err == nil || r.Err.Code != cluster.CodeInvalid || !same {
			l.t.Fatalf("the last leaf of %s shows that one is torn: %+v, changed %t", b.title, r, !same)
		}
		return
	}
	if r.Err != nil || r.Existing {
		l.t.Fatalf("leaf %d of %s: %+v", k, b.title, r)
	}
	if l.tidy(); s == nil {
		s = &stack{book: b, by: who, at: l.m.now, have: map[int]bool{}}
		l.counter = append(l.counter, s)
	}
	s.have[k], s.torn = true, s.torn || torn
}

// specOf is a small spec, or one that names a book.
func (l *library) specOf() (*cluster.Spec, *book) {
	if l.draw("small", 4) == 0 {
		return spec(0), nil
	}
	b := l.some()
	s := *b.spec
	return &s, b
}

// borrows is a submit of one job or two, which are let in together or not at all.
func (l *library) borrows() {
	who := l.someone()
	var specs []*cluster.Spec
	var loans []*loan
	fits := true
	for range 1 + l.draw("another", 2) {
		s, b := l.specOf()
		fits = fits && (b == nil || l.has(b, l.m.now.Add(time.Second)))
		specs, loans = append(specs, s), append(loans, &loan{by: who, spec: s, book: b})
	}
	l.rids++
	r := l.m.do(naming(submitCmd(l.m.f.NextJobID(), fmt.Sprint("loan ", l.rids), who, specs...)))[0]
	if (r.Err == nil) != fits || r.LacksBulk != !fits {
		l.t.Fatalf("a submit: %+v, by the counter and the loans it fits: %t", r, fits)
	}
	if !fits {
		return
	}
	if len(l.counter) > 0 {
		l.tidy()
	}
	for i, x := range loans {
		x.id = r.Jobs[i]
		l.loans = append(l.loans, x)
		l.counter = slices.DeleteFunc(l.counter, func(s *stack) bool { return s.book == x.book })
	}
}

// swaps is an update to another book, or to none.
func (l *library) swaps() {
	if len(l.loans) == 0 {
		return
	}
	x := l.loans[l.draw("loan", len(l.loans))]
	s, b := l.specOf()
	cmd := updateCmd(l.m.job(x.id), func(old *cluster.Spec) { old.Env, old.Script, old.Bulk = s.Env, nil, nil })
	nameIn(cmd.GetUpdateJob().Spec)
	r := l.m.do(cmd)[0]
	if want := b == nil || l.has(b, l.m.now); (r.Err == nil) != want || r.LacksBulk != !want {
		l.t.Fatalf("job %d swaps: %+v, by the counter and the loans it may: %t", x.id, r, want)
	} else if want {
		x.spec, x.book = s, b
	}
}

func (l *library) returns() {
	if len(l.loans) == 0 {
		return
	}
	i := l.draw("loan", len(l.loans))
	l.m.must(cancelCmd(l.loans[i].id, 0))
	l.loans = slices.Delete(l.loans, i, i+1)
}

// bytesOf are what a user has: what each spec has of its own, each book once, and what
// lies on the counter.
func (l *library) bytesOf(uid cluster.UID) (n int64) {
	once := map[*book]bool{}
	for _, x := range l.loans {
		if x.by != uid {
			continue
		}
		own, bulk := x.spec.Weight()
		if n += own; x.book != nil && !once[x.book] {
			once[x.book] = true
			n += bulk
		}
	}
	for _, s := range l.counter {
		if s.by == uid {
			n += s.book.bytes
		}
	}
	return n
}

// more is what a job with a book would add to what a user has.
func (l *library) more(uid cluster.UID, b *book) int64 {
	own, bulk := b.spec.Weight()
	for _, x := range l.loans {
		if x.by == uid && x.book == b {
			return own
		}
	}
	for _, s := range l.counter {
		if s.by == uid && s.book == b {
			return own
		}
	}
	return own + bulk
}

func (l *library) check(what string) {
	total := l.bytesOf(1000) + l.bytesOf(1001)
	for _, b := range l.books {
		if got, want := l.m.f.HasBulk(b.kept.Bulk.Sum()), l.has(b, l.m.f.Now()); got != want {
			l.t.Fatalf("%s: %s is there: %t, by the counter and the loans %t", what, b.title, got, want)
		}
		for uid := cluster.UID(1000); uid < 1002; uid++ {
			user, all, more := l.m.f.UserBytes(uid, []*cluster.Job{{Spec: b.kept}})
			if want := l.bytesOf(uid); user != want || all != total || more != l.more(uid, b) {
				l.t.Fatalf("%s: user %d has %d bytes of %d and %s would add %d; by the counter and the loans %d of %d and %d",
					what, uid, user, all, b.title, more, want, total, l.more(uid, b))
			}
		}
	}
	for _, x := range l.loans {
		if x.book != nil && !slices.Equal(entire(l.m.job(x.id).Spec).Env, x.book.spec.Env) {
			l.t.Fatalf("%s: job %d has another environment than %s", what, x.id, x.book.title)
		}
	}
}

// TestContentByTheCounter: whoever brings environments and scripts, in whatever order,
// twice, torn or too late, and whichever jobs come, change and go: what is there, whose
// bytes it is and what another job would add is what a librarian finds who goes through
// the counter and the loans.
func TestContentByTheCounter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := &library{t: t, m: newMachine(t)}
		for i, size := range []int{20_000, BulkPart + 9, 2*BulkPart + 9} {
			b := &book{title: fmt.Sprint("book ", i), spec: bigSpec(fmt.Sprint(i), size)}
			for _, c := range partsCmds(0, b.spec.Env, nil) {
				b.leaves, b.bytes = append(b.leaves, c.GetPutBulk().Data), int64(c.GetPutBulk().Size)
			}
			apart := *b.spec
			b.kept = &apart
			b.kept.Env, b.kept.Bulk = nil, cluster.HoldBulk(b.spec.Env, nil)
			l.books = append(l.books, b)
		}
		l.m.must(initCmd("c1", 1000))
		steps := []func(){l.brings, l.brings, l.brings, l.brings, l.borrows, l.borrows, l.swaps, l.returns}
		for i := range rapid.IntRange(5, 30).Draw(t, "steps") {
			l.m.now = l.m.now.Add(time.Duration(rapid.SampledFrom([]int{0, 0, 1, 20, 58, 59}).Draw(t, "pause")) * time.Second)
			steps[l.draw("step", len(steps))]()
			l.check(fmt.Sprint("step ", i))
		}
		l.m.f = restored(t, snapshotOf(t, l.m.f))
		l.check("a restore")
		l.brings()
		l.check("after a restore")
	})
}
