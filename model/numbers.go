package model

import (
	"math"
	"strconv"
	"strings"
)

// MaxNumbersText bounds what EncodeNumbers returns, in bytes.
const MaxNumbersText = 320

const (
	// maxNumbers is how many numbers of a command are considered, and numberDigits
	// how many digits of each.
	maxNumbers   = 16
	numberDigits = 9
	// maxNumberName bounds the name of a number, in bytes.
	maxNumberName = 64
)

// Number is a number in which the commands of a program may differ.
type Number struct {
	// Name is that of its flag or variable, "" for none.
	Name string
	// Value has nine digits. It is NaN for several numbers separated by commas.
	Value float64
	// Long means that its name suggests that it determines how long a program runs.
	Long bool
}

// called returns what to call n if it has no name.
func (n Number) called() string {
	if n.Name != "" {
		return n.Name
	}
	return "the number " + strconv.FormatFloat(n.Value, 'g', numberDigits, 64)
}

// Numbers returns the numbers of a command that Program leaves out, first those
// whose names suggest how long it runs, at most 16. Commands of one program have
// equally many, in the same order.
func Numbers(command []string) []Number {
	var long, others []Number
	eachWord(strings.Join(command, " "), func(flag, word string, _ bool) {
		if unnumbered(flag, word) != "#" {
			return
		}
		n := Number{Name: strings.ToValidUTF8(flag[:min(len(flag), maxNumberName)], ""), Value: valueOf(word), Long: isLong(flag)}
		if n.Long {
			long = append(long, n)
		} else {
			others = append(others, n)
		}
	})
	all := append(long, others...)
	return all[:min(len(all), maxNumbers)]
}

// lengths are parts of the names of flags whose numbers determine how long a
// program runs, and notLengths parts of those that only sound like it: how often
// something is saved or logged.
var (
	lengths    = []string{"epoch", "step", "iter", "second", "minute", "hour", "time", "duration", "round", "repeat", "episode", "update", "count", "loop", "generation", "cycle", "passes", "sweep"}
	notLengths = []string{"log", "save", "eval", "warm", "every", "freq", "interval", "patience", "print", "timeout", "decay", "lr", "learning"}
)

func isLong(flag string) bool {
	flag = strings.ToLower(flag)
	return holdsOne(flag, lengths) && !holdsOne(flag, notLengths)
}

// valueOf returns the number that a word is, to nine digits.
func valueOf(word string) float64 {
	v, err := strconv.ParseFloat(strings.Trim(word, `"'();,[]`), 64)
	if err != nil {
		return math.NaN()
	}
	v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', numberDigits, 64), 64)
	return v
}

// EncodeNumbers encodes the values of numbers in canonical form, at most
// MaxNumbersText bytes: they travel with the job through the log.
func EncodeNumbers(ns []Number) string {
	var b strings.Builder
	for i, n := range ns[:min(len(ns), maxNumbers)] {
		if i > 0 {
			b.WriteByte(' ')
		}
		if math.IsNaN(n.Value) || math.IsInf(n.Value, 0) {
			b.WriteByte('-')
		} else {
			b.WriteString(strconv.FormatFloat(n.Value, 'g', numberDigits, 64))
		}
	}
	return b.String()
}

// DecodeNumbers decodes the result of EncodeNumbers; it returns nil for anything
// else.
func DecodeNumbers(s string) []float64 {
	words := strings.Fields(s)
	if len(s) > MaxNumbersText || len(words) > maxNumbers {
		return nil
	}
	var out []float64
	for _, w := range words {
		v := math.NaN()
		if w != "-" {
			var err error
			if v, err = strconv.ParseFloat(w, 64); err != nil {
				return nil
			}
		}
		out = append(out, v)
	}
	return out
}
