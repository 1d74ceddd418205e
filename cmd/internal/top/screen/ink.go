package screen

import (
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
)

// style is how text looks: the parameter of a terminal's SGR sequence.
type style string

const (
	none    style = ""
	bold    style = "1"
	dim     style = "2"
	reverse style = "7"
	red     style = "31"
	green   style = "32"
	yellow  style = "33"
	blue    style = "34"
	magenta style = "35"
	cyan    style = "36"
)

// ink draws: in colour or not, with all characters or only ASCII.
type ink struct{ plain, ascii bool }

// paint gives text a style. Without colours, red is bold and the others nothing.
func (k ink) paint(st style, text string) string {
	if k.plain && len(st) > 1 {
		if st != red {
			return text
		}
		st = bold
	}
	if st == none || text == "" {
		return text
	}
	return "\x1b[" + string(st) + "m" + text + "\x1b[m"
}

// pick is the first text, or the second if only ASCII can be drawn.
func (k ink) pick(text, ascii string) string {
	if k.ascii {
		return ascii
	}
	return text
}

// mostBytes is how much of what others wrote is looked at for one line: more than any
// terminal shows.
const mostBytes = 2048

// clean makes one line of what others wrote: nothing in it can steer a terminal.
func clean(s string) string {
	if len(s) > mostBytes {
		s = s[:mostBytes]
	}
	return console.Escape(s)
}

// escapes are the sequences that programs write to colour their output and to move
// about in it.
var escapes = regexp.MustCompile("\x1b(\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]*(\x07|\x1b\\\\)?|[()][A-Z0-9]|[=>78cDEHMZ])")

// cleanLine is clean for a line of output: colours are left out, tabs become spaces,
// and of a line that was written over the last text stays.
func cleanLine(s string) string {
	if len(s) > 4*mostBytes {
		s = s[:4*mostBytes]
	}
	s = escapes.ReplaceAllString(s, "")
	s = strings.TrimRight(s, "\r")
	if i := strings.LastIndexByte(s, '\r'); i >= 0 {
		s = s[i+1:]
	}
	return clean(strings.ReplaceAll(s, "\t", "    "))
}

func cleanLines(s string) []string {
	var out []string
	for line := range strings.SplitSeq(strings.TrimRight(s, "\n"), "\n") {
		out = append(out, cleanLine(line))
	}
	return out
}

// fit cuts or pads text to exactly width columns.
func (k ink) fit(text string, width int, right bool) string {
	if width <= 0 {
		return ""
	}
	if k.ascii {
		text = toASCII(text)
	}
	text = console.Cut(text, width)
	if k.ascii {
		text = strings.ReplaceAll(text, "…", "~")
	}
	pad := strings.Repeat(" ", max(0, width-console.TextWidth(text)))
	if right {
		return pad + text
	}
	return text + pad
}

// toASCII puts a question mark in the place of what such a terminal cannot show.
func toASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x80 {
			return r
		}
		return '?'
	}, s)
}

// wrap breaks text into lines of at most so many columns, at spaces where it can.
func wrap(text string, width int) []string {
	var out []string
	for width > 0 {
		end, space, w := 0, -1, 0
		for i, r := range text {
			if w += console.TextWidth(string(r)); w > width {
				break
			}
			if end = i + utf8.RuneLen(r); r == ' ' && i > 0 {
				space = i
			}
		}
		if w <= width || end == 0 {
			break
		}
		if space > 0 {
			end = space
		}
		out = append(out, text[:end])
		text = strings.TrimLeft(text[end:], " ")
	}
	return append(out, text)
}

// part is a job's part of a memory bar, or of what it holds.
type part struct{ given, used int64 }

var partStyles = []style{cyan, magenta, green, blue, yellow}

// bar draws the memory of a GPU: what each job was given side by side, solid as far
// as it is used and hatched beyond. Usage beyond all that was given is red.
func (k ink) bar(parts []part, stray, total int64, width int) string {
	if total <= 0 || width <= 0 {
		return strings.Repeat(" ", max(0, width))
	}
	at := func(mib int64) int {
		return min(width, int(float64(max(0, mib))*float64(width)/float64(total)+0.5))
	}
	solid, hatched := []string{"█", "▓"}, []string{"▒", "░"}
	if k.ascii {
		solid, hatched = []string{"#", "%"}, []string{"/", ":"}
	}
	var b strings.Builder
	sum, drawn := int64(0), 0
	for i, p := range parts {
		end := max(drawn, at(sum+p.given))
		if p.given > 0 && end == drawn && end < width {
			end++ // any share is visible
		}
		used := min(end-drawn, at(sum+p.used)-at(sum))
		used = max(used, 0)
		glyph := 0
		if k.plain { // neighbours differ by their pattern where they have no colour
			glyph = i % 2
		}
		st := partStyles[i%len(partStyles)]
		b.WriteString(k.paint(st, strings.Repeat(solid[glyph], used)+strings.Repeat(hatched[glyph], end-drawn-used)))
		sum, drawn = sum+p.given, end
	}
	if over := min(at(sum+stray)-at(sum), width-drawn); over > 0 {
		b.WriteString(k.paint(red, strings.Repeat(k.pick("█", "!"), over)))
		drawn += over
	}
	return b.String() + k.paint(dim, strings.Repeat(k.pick("·", "."), max(0, width-drawn)))
}

var (
	blocks      = []rune(" ▁▂▃▄▅▆▇█")
	asciiBlocks = []rune(" _.-=+*%#")
)

// curve draws samples in thousandths, -1 for unknown, as a chart of some rows, with
// the newest at the right.
func (k ink) curve(samples []int16, width, height int) []string {
	glyphs := blocks
	if k.ascii {
		glyphs = asciiBlocks
	}
	cols := bucket(samples, width)
	out := make([]string, height)
	for row := range height {
		var b strings.Builder
		floor := (height - 1 - row) * 8
		for _, v := range cols {
			if v < 0 {
				b.WriteRune(' ')
				continue
			}
			level := (v*height*8 + 500) / 1000
			if row == height-1 {
				level = max(level, 1) // measured as zero
			}
			b.WriteRune(glyphs[max(0, min(level-floor, 8))])
		}
		out[row] = b.String()
	}
	return out
}

// bucket lays samples out over columns: the last ones if there are few, means of
// several if there are many.
func bucket(samples []int16, width int) []int {
	out := make([]int, width)
	per := max(1, (len(samples)+width-1)/max(1, width))
	for i := range out {
		end := len(samples) - (width-1-i)*per
		sum, n := 0, 0
		for j := max(0, end-per); j < end; j++ {
			if samples[j] >= 0 {
				sum, n = sum+int(samples[j]), n+1
			}
		}
		if out[i] = -1; n > 0 {
			out[i] = sum / n
		}
	}
	return out
}
