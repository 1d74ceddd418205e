package blobs

import "github.com/berth-scheduler/berth/cluster"

// heldBulk is what is stored apart for the specs of some jobs and arrays, and how
// many of these there are.
type heldBulk struct {
	bulk cluster.Bulk
	n    int
}

type userBytes struct {
	bytes int64
	bulk  map[Sum]int // jobs and arrays that have it
}

// count adds a holder of a content, or with n -1 removes one.
func (b *Store) count(sum Sum, k cluster.Bulk, n int) {
	h := b.held[sum]
	if h == nil {
		h = &heldBulk{bulk: k}
		b.held[sum] = h
	}
	if h.n += n; h.n == 0 {
		delete(b.held, sum)
	}
}

// Count adds a spec of a user, or with n -1 removes one.
func (b *Store) Count(uid cluster.UID, s *cluster.Spec, n int) {
	u := b.users[uid]
	if u == nil {
		u = &userBytes{}
		b.users[uid] = u
	}
	own, bulk := s.Weight()
	if s.Bulk != nil {
		if u.bulk == nil {
			u.bulk = map[Sum]int{}
		}
		sum := s.Bulk.Sum()
		b.count(sum, s.Bulk, n)
		was := u.bulk[sum]
		if u.bulk[sum] = was + n; was+n == 0 {
			delete(u.bulk, sum)
		}
		if was > 0 && was+n > 0 {
			bulk = 0 // another one has it too
		}
	}
	u.bytes += int64(n) * (own + bulk)
	b.total += int64(n) * (own + bulk)
	if u.bytes == 0 && len(u.bulk) == 0 {
		delete(b.users, uid)
	}
}

// Weigh counts the spec of j, which replaces old and is not a task.
func (b *Store) Weigh(old, j *cluster.Job) {
	was := old != nil && !old.State.Terminal()
	is := !j.State.Terminal()
	if was && is && old.Spec == j.Spec {
		return
	}
	if was {
		b.Count(old.Owner.UID, old.Spec, -1)
	}
	if is {
		b.Count(j.Owner.UID, j.Spec, 1)
	}
}

// Weight is the size of specs in bytes: their own, and that of their large parts,
// each counted once.
type Weight struct {
	own   int64
	bulks map[Sum]int64
}

// WeightOf sums the specs of jobs, which takes a while.
func WeightOf(jobs []*cluster.Job) Weight {
	w := Weight{bulks: map[Sum]int64{}}
	for _, j := range jobs {
		own, bulk := j.Spec.Weight()
		switch w.own += own; {
		case j.Spec.Bulk != nil:
			w.bulks[j.Spec.Bulk.Sum()] = bulk
		case bulk > 0:
			w.bulks[cluster.BulkSum(j.Spec.Large())] = bulk
		}
	}
	return w
}

// Bytes returns the spec bytes of a user's waiting and running jobs, including
// uploads for future ones, and those of all users. more is how many bytes the specs
// of next would add.
func (b *Store) Bytes(uid cluster.UID, next Weight) (user, all, more int64) {
	u := b.users[uid]
	if u == nil {
		u = &userBytes{}
	}
	user, all, more = u.bytes+b.uploads.bytes[uid], b.total+b.uploads.total, next.own
	for sum, bulk := range next.bulks {
		if x := b.uploads.bySum[sum]; u.bulk[sum] == 0 && (x == nil || x.uid != uid) {
			more += bulk
		}
	}
	return user, all, more
}

// Figures are the counts of a store.
type Figures struct {
	// Specs are the spec bytes of each user, SpecBytes those of all; Held is how
	// many jobs and arrays have a content.
	Specs     map[cluster.UID]int64
	SpecBytes int64
	Held      map[Sum]int
	// Uploads is how many there are, Aged of how many the age is known, Sent the
	// bytes that each user uploaded, and UploadBytes those of all.
	Uploads, Aged int
	Sent          map[cluster.UID]int64
	UploadBytes   int64
}

// Figures returns the counts, for comparison with a recount.
func (b *Store) Figures() Figures {
	f := Figures{
		Specs: map[cluster.UID]int64{}, SpecBytes: b.total, Held: map[Sum]int{},
		Uploads: len(b.uploads.bySum), Aged: len(b.uploads.order), Sent: b.uploads.bytes, UploadBytes: b.uploads.total,
	}
	for uid, u := range b.users {
		f.Specs[uid] = u.bytes
	}
	for sum, h := range b.held {
		f.Held[sum] = h.n
	}
	return f
}
