package sim

// kind orders what happens at the same time.
type kind uint8

const (
	evEnd kind = iota
	evMemory
	evOOM
	evProfiled
	evSaved
	evNodeUp
	evNodeDown
	evLook
	evPowerUp
	evPower
	evPass
)

// event is something that will happen unless ver moved on.
type event struct {
	at  int64
	id  int32
	ver uint32
	k   kind
}

func (a event) before(b event) bool {
	switch {
	case a.at != b.at:
		return a.at < b.at
	case a.k != b.k:
		return a.k < b.k
	case a.id != b.id:
		return a.id < b.id
	}
	return a.ver < b.ver
}

// agenda is a binary heap of events: container/heap would box each of them.
type agenda []event

func (h *agenda) push(e event) {
	*h = append(*h, e)
	s := *h
	for i := len(s) - 1; i > 0; {
		up := (i - 1) / 2
		if !s[i].before(s[up]) {
			break
		}
		s[i], s[up] = s[up], s[i]
		i = up
	}
}

func (h *agenda) pop() event {
	s := *h
	top, last := s[0], len(s)-1
	s[0] = s[last]
	*h = s[:last]
	s = s[:last]
	for i := 0; ; {
		c := 2*i + 1
		if c >= len(s) {
			break
		}
		if c+1 < len(s) && s[c+1].before(s[c]) {
			c++
		}
		if !s[c].before(s[i]) {
			break
		}
		s[i], s[c] = s[c], s[i]
		i = c
	}
	return top
}
