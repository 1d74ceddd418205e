package service

import (
	"fmt"
	"strings"
)

// Told is the reason for the number of replicas of a service. The zero value means
// that no measurement decided it.
type Told struct {
	// Known means that something was measured, Asleep that it had no replica, until
	// the next request or what the forecast expects.
	Known, Asleep bool
	// Asked is how many its current load requires; Ahead is how many Forecast
	// requires, if there is one: then its Ahead is not 0.
	Asked, Ahead int
	Forecast     Forecast
	// N is how many it is to have, between Least and Most.
	N, Least, Most int
}

// String returns the reason in words, "" if there is none.
func (t *Told) String() string {
	need := max(t.Asked, t.Ahead)
	switch {
	case t.Asleep && t.N == 0:
		return "until a request comes"
	case t.Asleep && t.Ahead > 0 && t.Asked == 0:
		return fmt.Sprintf("nobody asks yet, the forecast is for %d", t.Ahead)
	case t.Asleep:
		return "a request waits"
	case !t.Known:
		return ""
	}
	parts := []string{fmt.Sprintf("its load asks for %d", t.Asked)}
	if t.Forecast.Ahead > 0 {
		parts[0] += fmt.Sprintf(", the forecast for %d", t.Ahead)
	}
	switch {
	case t.N < need && t.N == t.Most:
		parts = append(parts, fmt.Sprintf("it may have %d", t.Most))
	case t.N < need:
		parts = append(parts, "they at most double at a time")
	case t.N > need && t.N == t.Least:
		parts = append(parts, fmt.Sprintf("it has %d at least", t.Least))
	case t.N > need:
		parts = append(parts, "fewer after five minutes in which fewer were enough")
	}
	return strings.Join(parts, "; ")
}
