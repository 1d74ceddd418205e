package interfere

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/berth-scheduler/berth/model/gpuspec"
)

// Bounds of the observations behind one model. Beyond them the oldest are dropped.
const (
	// MaxObservations is the number of observations behind a model.
	MaxObservations = 4096
	// MaxPerUser is how many of them may come from one user: an eighth. The empty
	// user is the site itself and has no such bound.
	MaxPerUser = MaxObservations / 8
	// MaxRepeats is how many of them may be of one user's same job with the same
	// others on the same type in the same mode.
	MaxRepeats = 8

	maxTypeName = 64
	maxSpeed    = 2
)

// ErrObservation is wrapped by the errors of Observation.Check.
var ErrObservation = errors.New("bad interference observation")

// Observation is the measured speed of one job next to others.
type Observation struct {
	GPUType string
	Mode    Mode
	Job     Job
	Others  []Job // 1 to MaxSet-1
	// Speed is the job's rate over its rate alone: above 0 and at most 2, since
	// measurements scatter around 1.
	Speed float64
	// User owns Job; empty for measurements of the site itself.
	User string
}

// Check refuses impossible measurements, so that one broken or lying source cannot
// poison a model. Errors wrap ErrObservation.
func (o *Observation) Check() error {
	switch {
	case !(o.Speed > 0 && o.Speed <= maxSpeed):
		return fmt.Errorf("%w: speed is %v, must be above 0 and at most %d", ErrObservation, o.Speed, maxSpeed)
	case o.Mode >= modes:
		return fmt.Errorf("%w: mode %d, must be below %d", ErrObservation, o.Mode, modes)
	case len(o.GPUType) > maxTypeName:
		return fmt.Errorf("%w: GPU type of %d bytes, must be at most %d", ErrObservation, len(o.GPUType), maxTypeName)
	case len(o.Others) == 0 || len(o.Others) >= MaxSet:
		return fmt.Errorf("%w: %d other jobs, must be 1 to %d", ErrObservation, len(o.Others), MaxSet-1)
	}
	// Capitals can be longer than the letters that users wrote.
	if n := len(gpuspec.Normalize(o.GPUType)); n == 0 || n > maxTypeName {
		return fmt.Errorf("%w: GPU type %q has a normal form of %d bytes, must be 1 to %d", ErrObservation, o.GPUType, n, maxTypeName)
	}
	if err := checkLoad(&o.Job); err != nil {
		return err
	}
	for i := range o.Others {
		if err := checkLoad(&o.Others[i]); err != nil {
			return err
		}
	}
	return nil
}

func checkLoad(j *Job) error {
	for _, v := range [...]struct {
		name  string
		value float64
	}{{"utilization", j.Util}, {"bandwidth", j.Bandwidth}} {
		if !(v.value <= 1) {
			return fmt.Errorf("%w: %s is %v, must be 0 to 1, or negative if unknown", ErrObservation, v.name, v.value)
		}
	}
	return nil
}

// company identifies whose job ran next to which others and where.
func (o *Observation) company() uint64 {
	h := who(&o.Job) ^ digest(gpuspec.Normalize(o.GPUType)) ^ uint64(o.Mode)
	var others uint64 // a sum: their order has no meaning
	for i := range o.Others {
		others += mix(who(&o.Others[i]))
	}
	return mix(h) ^ others
}

// who returns a job's identity, or its load if it has no name.
func who(j *Job) uint64 {
	if j.Signature == "" {
		return mix(math.Float64bits(j.Util) ^ mix(math.Float64bits(j.Bandwidth)) ^ digest(j.Family))
	}
	return identity(j)
}

// bound returns the newest of obs that are valid and within the bounds, oldest
// first.
func bound(obs []Observation) []Observation {
	type repeat struct {
		user string
		what uint64
	}
	users := make(map[string]int)
	repeats := make(map[repeat]int)
	var keep []Observation
	for i := len(obs) - 1; i >= 0 && len(keep) < MaxObservations; i-- {
		o := &obs[i]
		if o.Check() != nil {
			continue
		}
		k := repeat{o.User, o.company()}
		if o.User != "" && users[o.User] >= MaxPerUser || repeats[k] >= MaxRepeats {
			continue
		}
		users[o.User]++
		repeats[k]++
		keep = append(keep, *o)
	}
	slices.Reverse(keep)
	return keep
}
