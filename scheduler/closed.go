package scheduler

import "github.com/berth-scheduler/berth/scheduler/say"

// close counts a card that is drained or not sound, on a node that takes jobs.
func (f *fleet) close(gpuType string) {
	if f.closed == nil {
		f.closed = map[string]int{}
	}
	f.closed[gpuType]++
}

// closedWords tells of the cards of a type that are out of service, "" when
// there are none.
func (f *fleet) closedWords(gpuType string) string {
	if n := f.closed[gpuType]; n > 0 {
		return "; " + say.GPUs(n) + " drained or not sound"
	}
	return ""
}

// closedInAll counts those of every type.
func (f *fleet) closedInAll() (n int) {
	for _, k := range f.closed {
		n += k
	}
	return n
}
