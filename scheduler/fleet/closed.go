package fleet

import "github.com/berth-scheduler/berth/scheduler/say"

// close counts a GPU that is drained or unhealthy, on a node that takes jobs.
func (f *Fleet) close(gpuType string) {
	if f.closed == nil {
		f.closed = map[string]int{}
	}
	f.closed[gpuType]++
}

// ClosedWords describes the GPUs of a type that are out of service, "" if there are
// none.
func (f *Fleet) ClosedWords(gpuType string) string {
	if n := f.closed[gpuType]; n > 0 {
		return "; " + say.GPUs(n) + " drained or not sound"
	}
	return ""
}

// ClosedInAll counts those of every type.
func (f *Fleet) ClosedInAll() (n int) {
	for _, k := range f.closed {
		n += k
	}
	return n
}
