package power

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/berth-scheduler/berth/cluster"
)

// Limits of a signal: its size in bytes, its number of values, their magnitude, and
// how long the last one holds at most.
const (
	MaxSignalBytes = 1 << 20
	MaxPrices      = 20_000
	maxPrice       = 1e9
	longestPrice   = 24 * time.Hour
)

// worthWaiting is how much less power must cost, as a fraction of its cost now, for
// a job to wait for it.
const worthWaiting = 0.01

// Price is the cost of power, or the carbon that it causes, from a time on.
type Price struct {
	From  cluster.Time
	Value float64
}

// Signal is the cost of power over time. It follows ANDREAS (Filippini et al.,
// 2021) in that jobs wait for cheaper hours within their allowance. Values are
// immutable.
type Signal struct {
	// Prices are in order of time; each holds until the next one. The last holds as
	// long as the one before it did, an hour if it is alone.
	Prices []Price
	// Unit is for people, such as EUR/kWh or gCO2/kWh.
	Unit string
}

// ReadSignal reads a signal as JSON, [{"from": "2026-03-14T02:00:00Z", "value": 0.12}, …], or
// as CSV with those two columns, with or without a line that names them.
func ReadSignal(data []byte, unit string) (*Signal, error) {
	if len(data) > MaxSignalBytes {
		return nil, fmt.Errorf("a signal of more than %d bytes", MaxSignalBytes)
	}
	s := &Signal{Unit: unit}
	read := s.readCSV
	if text := bytes.TrimSpace(data); len(text) > 0 && text[0] == '[' {
		read = s.readJSON
	}
	if err := read(data); err != nil {
		return nil, err
	}
	switch {
	case len(s.Prices) == 0:
		return nil, errors.New("a signal without values")
	case len(s.Prices) > MaxPrices:
		return nil, fmt.Errorf("a signal of %d values, at most %d are read", len(s.Prices), MaxPrices)
	}
	for i := 1; i < len(s.Prices); i++ {
		if s.Prices[i].From <= s.Prices[i-1].From {
			return nil, fmt.Errorf("value %d: the times of a signal do not rise", i+1)
		}
	}
	return s, nil
}

func (s *Signal) readJSON(data []byte) error {
	var all []struct {
		From  time.Time `json:"from"`
		Value *float64  `json:"value"`
	}
	if err := json.Unmarshal(data, &all); err != nil {
		return fmt.Errorf("a signal that is no JSON of times and values: %w", err)
	}
	for i, x := range all {
		if x.Value == nil {
			return fmt.Errorf("value %d: has no value", i+1)
		}
		if err := s.add(i, x.From, *x.Value); err != nil {
			return err
		}
	}
	return nil
}

func (s *Signal) readCSV(data []byte) error {
	r := csv.NewReader(bytes.NewReader(data))
	r.FieldsPerRecord, r.TrimLeadingSpace = 2, true
	for i := 0; ; i++ {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("a signal that is no CSV of times and values: %w", err)
		}
		from, err := time.Parse(time.RFC3339, row[0])
		if err != nil && i == 0 {
			continue // header
		}
		value, verr := strconv.ParseFloat(row[1], 64)
		if err := errors.Join(err, verr); err != nil {
			return fmt.Errorf("line %d: want a time such as 2026-03-14T02:00:00Z and a number: %w", i+1, err)
		}
		if err := s.add(i, from, value); err != nil {
			return err
		}
	}
}

func (s *Signal) add(i int, from time.Time, value float64) error {
	if from.Year() < 1971 || from.Year() > 2200 || math.IsNaN(value) || math.Abs(value) > maxPrice {
		return fmt.Errorf("value %d: %g from %s on is beyond what can be", i+1, value, from.Format(time.RFC3339))
	}
	s.Prices = append(s.Prices, Price{cluster.TimeOf(from), value})
	return nil
}

// Ends returns when the last price ceases to hold.
func (s *Signal) Ends() cluster.Time {
	n := len(s.Prices)
	last := s.Prices[n-1].From
	if n == 1 {
		return last.Add(time.Hour)
	}
	return last.Add(min(last.Sub(s.Prices[n-2].From), longestPrice))
}

// At returns the price at a time, and reports whether there is one.
func (s *Signal) At(at cluster.Time) (float64, bool) {
	if s == nil || len(s.Prices) == 0 || at < s.Prices[0].From || at >= s.Ends() {
		return 0, false
	}
	return s.Prices[s.holds(at)].Value, true
}

// holds returns the index of the price at a time that is not before the first.
func (s *Signal) holds(at cluster.Time) int {
	i, found := slices.BinarySearchFunc(s.Prices, at, func(p Price, at cluster.Time) int {
		switch {
		case p.From < at:
			return -1
		case p.From > at:
			return 1
		}
		return 0
	})
	if !found {
		i--
	}
	return i
}

// Mean returns the mean price of constant power from a time on for a length, and
// reports whether it is known until then.
func (s *Signal) Mean(from cluster.Time, length time.Duration) (float64, bool) {
	to := from.Add(max(length, time.Second))
	if s == nil || len(s.Prices) == 0 || from < s.Prices[0].From || to > s.Ends() {
		return 0, false
	}
	sum := 0.0
	for i := s.holds(from); i < len(s.Prices) && s.Prices[i].From < to; i++ {
		end := s.Ends()
		if i+1 < len(s.Prices) {
			end = s.Prices[i+1].From
		}
		sum += s.Prices[i].Value * min(to, end).Sub(max(from, s.Prices[i].From)).Seconds()
	}
	return sum / to.Sub(from).Seconds(), true
}

// Waits is a job's wait for cheaper power: until when, what its power then costs on
// average, and what it costs now.
type Waits struct {
	Until         cluster.Time
	Then, Instead float64
}

// Defer returns until when a job of a length that may start until latest waits for
// cheaper power: until the start at which it costs least, and of equals the first.
// It reports false if the job should start now: nothing is cheaper by a hundredth,
// or the cost now is unknown. The cost is linear between starts or ends at which
// the price changes, so only those can be cheapest, and the last start.
func (s *Signal) Defer(now, latest cluster.Time, length time.Duration) (Waits, bool) {
	instead, known := s.Mean(now, length)
	if !known {
		if instead, known = s.At(now); !known {
			return Waits{}, false
		}
	}
	w := Waits{Until: now, Then: instead, Instead: instead}
	try := func(at cluster.Time) {
		if at <= now || at > latest {
			return
		}
		if cost, known := s.Mean(at, length); known && (cost < w.Then || cost == w.Then && at < w.Until) {
			w.Until, w.Then = at, cost
		}
	}
	for _, p := range s.Prices {
		try(p.From.Add(-length))
		try(p.From)
	}
	try(s.Ends().Add(-length))
	try(latest)
	return w, w.Until > now && instead-w.Then >= worthWaiting*math.Abs(instead)
}

// Deferral is how long a job may wait: it must have ended within so much of its
// submission.
type Deferral struct {
	Submitted cluster.Time
	Within    time.Duration
	// Length is how long it is predicted to run, 0 if unknown: then half of Within
	// is left for it.
	Length time.Duration
}

// Of returns what a job waits for.
func (d Deferral) Of(s *Signal, now cluster.Time) (Waits, bool) {
	length := d.Length
	if length <= 0 {
		length = d.Within / 2
	}
	return s.Defer(now, d.Submitted.Add(d.Within-length), length)
}

// DeferralOf returns the deferral of a job whose spec asks for it, by its
// prediction.
func DeferralOf(j *cluster.Job, submitted cluster.Time) Deferral {
	d := Deferral{Submitted: submitted, Within: j.Spec.Defer, Length: j.Spec.Duration}
	for i := range j.Estimates {
		d.Length = max(d.Length, j.Estimates[i].Duration)
	}
	d.Length = cmp.Or(d.Length, j.Spec.TimeLimit)
	return d
}
