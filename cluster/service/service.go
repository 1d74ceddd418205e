// Package service defines a service: an array of replicas that run until they are
// ended, and that accept requests once they are found healthy. It imports nothing
// else of Berth, reads no clock and does no I/O: [Plan] computes what a leader must
// do from its arguments.
package service

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds of a service, and its defaults.
const (
	// MaxReplicas is the maximum number of replicas.
	MaxReplicas = 256
	// Spare is how many more than its initial replicas it may be scaled to if no
	// range is given.
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

// Service is what a user asked for. Values are immutable.
type Service struct {
	// Name is the service's name, per owner. The latest of several with one name
	// replaces the others, replica by replica.
	Name string
	// Replicas is the initial number; Min and Max bound the scaling. The array has
	// Max tasks.
	Replicas, Min, Max int
	// Port is the name of its port.
	Port string
	// Health is the path where a GET answers 2xx or 3xx while a replica may get
	// requests; "" means that it accepts connections. It is checked after each
	// Every; Fails failures in a row make it unhealthy, and as many more end it.
	Health string
	Every  time.Duration
	Fails  int
	// StartWithin is how long a replica may take to become healthy for the first
	// time, and Drain how long one that is to end keeps running after it gets no
	// more requests.
	StartWithin, Drain time.Duration
	// Scale is the load it is scaled by, and SLO its objective; if both are zero,
	// only its owner scales it.
	Scale Scale
	SLO   SLO
	// IdleAfter is the time without a request after which a service with a Min of 0
	// has no replica; 0 for others.
	IdleAfter time.Duration
	// NoForecast scales it by its current load only, ignoring other days.
	NoForecast bool
}

// scales reports whether its load determines the number of replicas.
func (s *Service) scales() bool { return s.Scale != Scale{} || s.SLO != SLO{} }

// Forecasts reports whether replicas are started ahead of its load, based on other
// days.
func (s *Service) Forecasts() bool { return s.scales() && s.Min < s.Max && !s.NoForecast }

// LeastOf returns the default Min of a service with that many initial replicas: the
// same number if it is scaled by load, else 1, or 0 if it begins with none.
func (s *Service) LeastOf(replicas int) int {
	if replicas == 0 || s.scales() {
		return replicas
	}
	return 1
}

// Metric returns the key in replicas' progress by which it is scaled while nothing
// else is known, "" for none.
func (s *Service) Metric() string {
	switch {
	case s.Scale.On != "" && s.Scale.On != GPU:
		return s.Scale.On
	case s.SLO != SLO{} && s.Scale == Scale{}:
		return LatencyKey
	}
	return ""
}

// Scale is a target load per replica.
type Scale struct {
	// On is GPU for the fraction of its GPU share that a replica uses, from 0 to 1,
	// or the key of a number in its progress, such as requests in flight.
	On string
	// Target is the load that each replica should have.
	Target float64
}

// GPU is the load that is measured rather than reported.
const GPU = "gpu"

// String returns the form that ParseScale parses, "" for none.
func (s Scale) String() string {
	switch {
	case s == Scale{}:
		return ""
	case s.On == GPU:
		return fmt.Sprintf("gpu=%.4g%%", s.Target*100)
	}
	return fmt.Sprintf("%s=%.6g", s.On, s.Target)
}

// Check returns the first fault, and where it is.
func (s *Service) Check() error {
	switch {
	case !isName(s.Name):
		return fmt.Errorf("name %q: want 1 to %d of a to z, 0 to 9 and -, a letter first", short(s.Name), maxName)
	case s.Max < 1 || s.Max > MaxReplicas:
		return fmt.Errorf("replicas: %d is outside 1 to %d", s.Max, MaxReplicas)
	case s.Min < 0 || s.Min > s.Max:
		return fmt.Errorf("replicas: %d-%d is not a range; want two numbers up to %d, the smaller one first", s.Min, s.Max, MaxReplicas)
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

// Bytes returns the approximate memory of a service, 0 for nil.
func (s *Service) Bytes() int {
	if s == nil {
		return 0
	}
	return 192 + len(s.Name) + len(s.Port) + len(s.Health) + len(s.Scale.On)
}

// isName reports whether text is a valid host-like name, safe in the configuration
// of other programs.
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

// Mark stands for the port in a command.
const Mark = "{port}"

// Fill replaces the marks in a command with a port number.
func Fill(command []string, port uint16) []string {
	out := slices.Clone(command)
	for i := range out {
		out[i] = strings.ReplaceAll(out[i], Mark, fmt.Sprint(port))
	}
	return out
}

// Backoff returns how long an ended replica waits before it restarts: not at all if
// it ran for long, else twice as long after each of its latest early ends.
func Backoff(soon int) time.Duration {
	const first, most = time.Second, 5 * time.Minute
	if soon <= 0 {
		return 0
	}
	return min(most, first<<min(soon-1, 9))
}

// Soon is how early an end counts as a failure to start.
const Soon = time.Minute
