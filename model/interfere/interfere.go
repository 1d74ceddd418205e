// Package interfere predicts the speed of jobs that share one GPU: for each of up
// to eight jobs the normalized speed, where 1 is as fast as alone and the slowdown
// is 1/speed.
//
// A prior of a few non-negative coefficients per sharing mode answers before
// anything was measured. Observations refit the coefficients, then teach how
// sensitive and how aggressive each job is, then what each pair of jobs does. All
// is deterministic: equal observations in equal order give an equal model, byte for
// byte, on every architecture.
package interfere

const (
	// MaxSet is the largest set of jobs on one GPU that is predicted.
	MaxSet = 8
	// MinSpeed is the lowest speed that is ever predicted.
	MinSpeed = 0.02
	// Unknown stands for an unknown utilization or bandwidth. Every negative number
	// and NaN mean the same to Speeds.
	Unknown = -1.0
	// bandwidthGuess is the memory bandwidth per utilization assumed if only the
	// latter is known. A judgement: half of the time in which kernels run.
	bandwidthGuess = 0.5
)

// Mode is how several jobs share one GPU.
type Mode uint8

// The modes. Their numbers are part of the encoding.
const (
	// TimeSlicing is a GPU's default: kernels of different processes take turns.
	TimeSlicing Mode = iota
	// MPS is NVIDIA's multi-process service: kernels of different processes run
	// concurrently.
	MPS
	// MIG gives each job SMs, cache and bandwidth of its own. Alone then means
	// alone on the same slice.
	MIG

	modes = 3
)

// String returns the mode's name in configuration and output.
func (m Mode) String() string {
	switch m {
	case TimeSlicing:
		return "time-slicing"
	case MPS:
		return "mps"
	case MIG:
		return "mig"
	}
	return "unknown"
}

// Job is one of the jobs that share a GPU.
type Job struct {
	// Signature identifies the job: equal for jobs that do the same. Empty means
	// that nothing is learned about this job in particular.
	Signature string
	// Family groups similar signatures, such as one model at several batch sizes;
	// may be empty.
	Family string
	// Util is the fraction of time, 0 to 1, in which the job has a kernel running
	// when alone on this GPU; Unknown if unknown.
	Util float64
	// Bandwidth is the fraction of the peak memory bandwidth, 0 to 1, that the job
	// uses alone on this GPU; Unknown if unknown.
	Bandwidth float64
}

// Set is a set of jobs on one GPU. Their order has no meaning.
type Set struct {
	GPUType string
	Mode    Mode
	Jobs    []Job
}

// load is what the arithmetic needs of a job.
type load struct {
	util, bw float64
	known    bool // of the utilization
	sig, fam uint64
}

func loadOf(j *Job) load {
	l := load{sig: digest(j.Signature), fam: digest(j.Family)}
	if l.fam == l.sig {
		l.fam = 0 // one level is enough
	}
	if !(j.Util >= 0) {
		return l
	}
	l.known = true
	l.util = min(j.Util, 1)
	if j.Bandwidth >= 0 {
		l.bw = min(j.Bandwidth, 1)
	} else {
		l.bw = float64(bandwidthGuess * l.util)
	}
	return l
}

// digest returns a 64-bit name of a signature, 0 for none: FNV-1a, then mixed. Two
// signatures that collide share what is learned about them, nothing worse.
func digest(s string) uint64 {
	if s == "" {
		return 0
	}
	h := uint64(14695981039346656037)
	for i := 0; i < len(s); i++ {
		h ^= uint64(s[i])
		h *= 1099511628211
	}
	return max(1, mix(h))
}

// mix is the finalizer of splitmix64: it spreads every bit over the word.
func mix(h uint64) uint64 {
	h ^= h >> 30
	h *= 0xbf58476d1ce4e5b9
	h ^= h >> 27
	h *= 0x94d049bb133111eb
	return h ^ h>>31
}

// before is a total order of loads: sums follow it, so that rounding does not
// depend on the order in which the caller names the jobs.
func (l *load) before(o *load) bool {
	switch {
	case l.util != o.util:
		return l.util < o.util
	case l.bw != o.bw:
		return l.bw < o.bw
	case l.known != o.known:
		return o.known
	case l.sig != o.sig:
		return l.sig < o.sig
	}
	return l.fam < o.fam
}

// gang is a set in the order of before, with the position of each in the input.
type gang struct {
	n     int
	loads [MaxSet]load
	from  [MaxSet]int
}

func (g *gang) fill(jobs []Job) {
	g.n = len(jobs)
	for i := range jobs {
		l := loadOf(&jobs[i])
		k := i
		for ; k > 0 && l.before(&g.loads[k-1]); k-- {
			g.loads[k], g.from[k] = g.loads[k-1], g.from[k-1]
		}
		g.loads[k], g.from[k] = l, i
	}
}
