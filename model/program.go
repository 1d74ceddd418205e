package model

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-scheduler/berth/model/gpuspec"
)

// maxProgramText bounds the part of a command, script included, that is searched
// for numbers.
const maxProgramText = 16 << 10

// Program returns the name of what several commands have in common that differ only
// in numbers, like those of a search over learning rates and seeds: f without what
// Signature leaves out, the caller's words for who runs it and in what, and the
// words of the command. A number among these counts if it may affect the model's
// size; see sizes. The result is 32 hexadecimal digits, distinct from any
// Signature.
func (f Features) Program(identity string, command []string) string {
	words := []string{"program", identity}
	text := strings.Join(command, " ")
	if len(text) > maxProgramText {
		words = append(words, text[maxProgramText:])
	}
	eachWord(text, func(flag, word string, named bool) {
		if named {
			words = append(words, flag)
		}
		words = append(words, unnumbered(flag, word))
	})
	return f.Signature(strings.Join(words, "\x00"))
}

// eachWord calls do with each word of a command and its name: the flag before it,
// "" for none, or, if named, the part before its first =.
func eachWord(text string, do func(flag, word string, named bool)) {
	flag := ""
	for _, w := range strings.Fields(text[:min(len(text), maxProgramText)]) {
		name, value, named := strings.Cut(w, "=")
		if named {
			do(name, value, true)
		} else {
			do(flag, w, false)
		}
		if flag = ""; !named && strings.HasPrefix(w, "-") && !isNumber(w) {
			flag = w
		}
	}
}

// unnumbered returns a word without the number that it is, and without the digits
// in the value of a flag that says where results go.
func unnumbered(flag, word string) string {
	if flag == "" { // like most words of a long script
		if isNumber(word) {
			return "#"
		}
		return word
	}
	flag = strings.ToLower(flag)
	sized := isSized(flag)
	switch {
	case isNumber(word) && !sized:
		return "#"
	case holdsOne(flag, places) && !sized:
		return strings.Map(func(r rune) rune {
			if r >= '0' && r <= '9' {
				return -1
			}
			return r
		}, word)
	}
	return word
}

// holdsOne reports whether a flag contains one of parts.
func holdsOne(flag string, parts []string) bool {
	return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(flag, p) })
}

// isSized reports whether the number of a flag, in lower case, may be a size.
func isSized(flag string) bool {
	return holdsOne(flag, sizes) || len(flag) == 2 && flag[0] == '-' && strings.ContainsAny(flag[1:], sizesShort)
}

// sizes are parts of the names of flags whose numbers may be the size of a model,
// its batch or its inputs, or of the machine used. For other numbers, runs show by
// their similarity that they do not matter.
var sizes = []string{
	"batch", "bs", "size", "len", "seq", "dim", "width", "depth", "layer", "hidden", "head", "emb", "ctx", "context", "crop", "res", "worker",
	"accum", "micro", "gpu", "rank", "world", "chan", "filter", "expert", "block", "token", "vocab", "image", "img", "pix", "height", "mem",
	"bit", "precision", "sample", "node", "beam", "param", "scale", "degree", "parallel", "unit",
}

// sizesShort are one-letter flags that often stand for one of sizes.
const sizesShort = "bndhwlkcgj"

// places are parts of the names of flags that say where results go, or what a run
// is called: their digits belong to the run.
var places = []string{"out", "log", "dir", "save", "name", "tag", "exp", "run", "ckpt", "checkpoint"}

// isNumber reports whether a word is a number, or several separated by commas.
func isNumber(word string) bool {
	if !hasDigit(word) { // like most words
		return false
	}
	word = strings.Trim(word, `"'();,[]`)
	for part := range strings.SplitSeq(word, ",") {
		if part == "" || !strings.ContainsAny(part[:1], "0123456789.+-") {
			return false
		}
		if v, err := strconv.ParseFloat(part, 64); err != nil || math.IsInf(v, 0) || math.IsNaN(v) {
			return false
		}
	}
	return true
}

func hasDigit(word string) bool { return strings.ContainsAny(word, "0123456789") }

// Confidences of predictions, from runs of the same program, for a command that
// never ran. If the model is described, one run shows what its numbers do not
// change. Otherwise several commands must have taken nearly the same: only then do
// the numbers in them seem to change nothing.
const (
	confidenceProgram = 0.75
	programCommands   = 3
	programSpread     = 1.25
)

// fromProgram applies the measurements of runs of the same program, and reports
// whether they are sufficient.
func (p *Predictor) fromProgram(r *Request, spec *gpuspec.Spec, a *answer) bool {
	if p.h == nil {
		return false
	}
	o, exact := find(p.h.programs, r.Program, spec.Name)
	if o == nil {
		return false
	}
	mem, margin := float64(o.peakMiB), p.w.OtherTypeMargin
	if !r.Features.Known() {
		if o.commands < programCommands {
			return false
		}
		if mem > programSpread*float64(o.leastMiB) {
			more, ok := 0.0, false
			if mem, more, ok = o.memoryBy(r.Numbers); !ok {
				return false
			}
			margin *= more
		}
	}
	other, speed := 0.0, 1.0
	if !exact {
		other, speed = p.carry(r, o, spec)
	}
	if o.memorySeen {
		a.mem = max(1, mem+other)
		a.p95 = float64(a.mem*margin) + p.w.HistoryMarginMiB
		a.source, a.confidence = SourceProgram, confidenceProgram
	}
	p.measured(r, o, other, speed, confidenceProgram, a)
	if o.seconds.n > 0 && r.Features.Steps == 0 {
		secs, by, sure := o.secondsBy(r.Numbers)
		a.secs, a.timeSure = secs*speed, sure
		if by >= 0 {
			a.timeBy = r.Numbers[by].called()
		}
	}
	return o.memorySeen
}
