// Package service is what a service is: an array of replicas that run until somebody ends
// them, and that take requests once they are found to be healthy. It imports nothing of
// ours, reads no clock and does no I/O: what a leader is to do about a service follows
// from what it is told, by [Plan].
package service

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds of a service, and what it has where nothing is said.
const (
	// MaxReplicas is how many replicas it may have.
	MaxReplicas = 256
	// Spare is how many more than it begins with it may be scaled to where no range is
	// given.
	Spare = 8

	DefaultPort        = "http"
	DefaultEvery       = 2 * time.Second
	DefaultFails       = 3
	DefaultStartWithin = 10 * time.Minute
	DefaultDrain       = 10 * time.Second
	DefaultIdleAfter   = 10 * time.Minute

	maxName, maxPath = 63, 256
	minEvery         = time.Second
	maxEvery         = time.Hour
	maxFails         = 100
	maxStartWithin   = 24 * time.Hour
	maxDrain         = time.Hour
	minIdle, maxIdle = time.Second, 30 * 24 * time.Hour
)

// Service is what a user asked for of a service. Values are immutable.
type Service struct {
	// Name is the service's, of its owner. The latest of several with one name takes the
	// place of the others, replica by replica.
	Name string
	// Replicas is how many it begins with, Min and Max between how many it is scaled. It has
	// as many tasks as Max says.
	Replicas, Min, Max int
	// Port is what its port is called.
	Port string
	// Health is the path of which a GET answers 2xx or 3xx while a replica may be sent
	// requests; "" is that it takes connections. It is asked each time after Every; Fails
	// failures in a row make it unhealthy, and as many more end it.
	Health string
	Every  time.Duration
	Fails  int
	// StartWithin is how long a replica may take until it is healthy for the first time, and
	// Drain how long one that is to end goes on after nobody is sent to it any more.
	StartWithin, Drain time.Duration
	// Scale is by what it is scaled, and SLO what it is to hold; the zero values of both are
	// by its owner alone.
	Scale Scale
	SLO   SLO
	// IdleAfter is after which time without a request one whose Min is 0 has no replica; 0
	// for others.
	IdleAfter time.Duration
	// NoForecast is that it has as many replicas as its load asks for now, whatever other
	// days were like.
	NoForecast bool
}

// scales reports whether its load chooses how many replicas it has.
func (s *Service) scales() bool { return s.Scale != Scale{} || s.SLO != SLO{} }

// Forecasts reports whether it has replicas ahead of its load, by other days.
func (s *Service) Forecasts() bool { return s.scales() && s.Min < s.Max && !s.NoForecast }

// LeastOf is the least that a service has which begins with so many replicas: as many where
// its load chooses, none where it begins with none, else one.
func (s *Service) LeastOf(replicas int) int {
	if replicas == 0 || s.scales() {
		return replicas
	}
	return 1
}

// Metric is the number in the progress of replicas by which it is scaled while nothing else
// is known, "" for none.
func (s *Service) Metric() string {
	switch {
	case s.Scale.On != "" && s.Scale.On != GPU:
		return s.Scale.On
	case s.SLO != SLO{} && s.Scale == Scale{}:
		return LatencyKey
	}
	return ""
}

// Scale is a load that each replica is to have.
type Scale struct {
	// On is GPU for the part that a replica uses of what it holds of GPUs, from 0 to 1, or
	// the key of a number in its progress, such as requests in flight.
	On string
	// Target is how much of it each replica is to have.
	Target float64
}

// GPU is the load that is measured and need not be told.
const GPU = "gpu"

// String is the form that ParseScale reads, "" for none.
func (s Scale) String() string {
	switch {
	case s == Scale{}:
		return ""
	case s.On == GPU:
		return fmt.Sprintf("gpu=%.4g%%", s.Target*100)
	}
	return fmt.Sprintf("%s=%.6g", s.On, s.Target)
}

// Check reports the first fault, and where it is.
func (s *Service) Check() error {
	switch {
	case !isName(s.Name):
		return fmt.Errorf("name %q: want 1 to %d of a to z, 0 to 9 and -, a letter first", short(s.Name), maxName)
	case s.Max < 1 || s.Max > MaxReplicas:
		return fmt.Errorf("replicas: %d is outside 1 to %d", s.Max, MaxReplicas)
	case s.Min < 0 || s.Min > s.Max:
		return fmt.Errorf("replicas: %d-%d is no range; want two numbers up to %d, the smaller one first", s.Min, s.Max, MaxReplicas)
	case s.Min == 0 && (s.IdleAfter < minIdle || s.IdleAfter > maxIdle):
		return fmt.Errorf("idle after %s: is outside %s to %s", s.IdleAfter, minIdle, maxIdle)
	case s.Min > 0 && s.IdleAfter != 0:
		return errors.New("idle after: is of a service that may have no replica; give a range such as replicas 0-4")
	case s.Replicas < s.Min || s.Replicas > s.Max:
		return fmt.Errorf("replicas: %d is outside %d-%d", s.Replicas, s.Min, s.Max)
	case !isName(s.Port):
		return fmt.Errorf("port %q: is the name of a port, such as http; its number is chosen when a replica starts, and stands in PORT", short(s.Port))
	case s.Health != "" && !isPath(s.Health):
		return fmt.Errorf("health %q: want a path of at most %d printable characters that begins with /, such as /healthz", short(s.Health), maxPath)
	case s.Every < minEvery || s.Every > maxEvery:
		return fmt.Errorf("health every %s: is outside %s to %s", s.Every, minEvery, maxEvery)
	case s.Fails < 1 || s.Fails > maxFails:
		return fmt.Errorf("health fails: %d is outside 1 to %d", s.Fails, maxFails)
	case s.StartWithin < time.Second || s.StartWithin > maxStartWithin:
		return fmt.Errorf("start within %s: is outside 1s to %s", s.StartWithin, maxStartWithin)
	case s.Drain < 0 || s.Drain > maxDrain:
		return fmt.Errorf("drain %s: is outside 0s to %s", s.Drain, maxDrain)
	case s.SLO != SLO{} && s.SLO.check() != nil:
		return s.SLO.check()
	case s.Scale == Scale{}:
		return nil
	case s.Min == s.Max:
		return errors.New("scale_on: has nothing to choose from; give a range, such as replicas 1-8")
	case s.Scale.On == "" || len(s.Scale.On) > maxName:
		return fmt.Errorf("scale_on: %q is no name of a load; want gpu=70%%, or the key of a number in the progress, such as in_flight=4", short(s.Scale.On))
	case !(s.Scale.Target > 0) || s.Scale.Target > 1e12 || s.Scale.On == GPU && s.Scale.Target > 1:
		return fmt.Errorf("scale_on: a target of %g is none; want more than 0, and of gpu at most 100%%", s.Scale.Target)
	}
	return nil
}

// Bytes is about how much memory a service takes, 0 for nil.
func (s *Service) Bytes() int {
	if s == nil {
		return 0
	}
	return 192 + len(s.Name) + len(s.Port) + len(s.Health) + len(s.Scale.On)
}

// isName reports whether text is a name as hosts have them, which can stand in
// configuration of other programs.
func isName(text string) bool {
	if text == "" || len(text) > maxName || text[0] < 'a' || text[0] > 'z' || text[len(text)-1] == '-' {
		return false
	}
	return strings.IndexFunc(text, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' }) < 0
}

func isPath(text string) bool {
	return text[0] == '/' && len(text) <= maxPath && strings.IndexFunc(text, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '#' }) < 0
}

func short(text string) string {
	if len(text) > maxName {
		text = text[:maxName]
	}
	return strings.ToValidUTF8(text, string(utf8.RuneError))
}

// Mark is where a command names its port, as {port}.
const Mark = "{port}"

// Fill puts the number of a port in the place of its marks in a command.
func Fill(command []string, port uint16) []string {
	out := slices.Clone(command)
	for i := range out {
		out[i] = strings.ReplaceAll(out[i], Mark, fmt.Sprint(port))
	}
	return out
}

// Backoff is how long a replica waits after it ended until it starts again: not at all
// when it ran for long, else twice as long with each of the last ends that came soon.
func Backoff(soon int) time.Duration {
	const first, most = time.Second, 5 * time.Minute
	if soon <= 0 {
		return 0
	}
	return min(most, first<<min(soon-1, 9))
}

// Soon is how early an end counts as a failure to start.
const Soon = time.Minute
