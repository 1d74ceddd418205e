package caps

import (
	"bytes"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// TailBytes is how much of the end of a job's output is searched.
const TailBytes = 64 << 10

// OOMLog finds what frameworks print when a GPU allocation is refused. Create it with
// NewOOMLog; it is safe for concurrent use.
type OOMLog struct {
	patterns []*regexp.Regexp
	size     *regexp.Regexp
}

// NewOOMLog returns a matcher for the messages of CUDA, cuBLAS, PyTorch, TensorFlow, JAX,
// CuPy and Triton. Each pattern mentions GPU memory or comes from a library that uses no
// other: a host's "Cannot allocate memory" or Python's MemoryError does not match.
func NewOOMLog() *OOMLog {
	o := OOMLog{size: regexp.MustCompile(`(?i)\b(?:tried|trying|failed) to allocate ([0-9]{1,15}(?:\.[0-9]{1,3})?) ?(bytes|[KMGT]i?B)\b`)}
	for _, p := range []string{
		`(?i)CUDA(?: error)?:? ?out of memory`,
		`\btorch\.(?:cuda\.)?OutOfMemoryError\b`,
		`\bCUBLAS_STATUS_ALLOC_FAILED\b`,
		`\bCUDNN_STATUS_(?:ALLOC_FAILED|INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)\b`,
		`\bcudaErrorMemoryAllocation\b`,
		`\bCUDA_ERROR_OUT_OF_MEMORY\b`,
		`\bRESOURCE_EXHAUSTED\b[^\n]{0,200}(?:[Oo]ut of memory|OOM|allocat)`,
		`\bResourceExhaustedError\b[^\n]{0,200}(?:OOM|allocat|memory)`,
		`\bcupy(?:_backends)?\.cuda\.memory\.OutOfMemoryError\b`,
		`\bNCCL WARN\b[^\n]{0,100}\bout of memory\b`,
	} {
		o.patterns = append(o.patterns, regexp.MustCompile(p))
	}
	return &o
}

// maxLine bounds how much of an output line is quoted.
const maxLine = 200

// Find returns the last line of out that reports that GPU memory ran out, made printable,
// or "". It searches only the last TailBytes of out.
func (o *OOMLog) Find(out []byte) string {
	if len(out) > TailBytes {
		out = out[len(out)-TailBytes:]
	}
	last := -1
	for _, p := range o.patterns {
		if all := p.FindAllIndex(out, -1); len(all) > 0 {
			last = max(last, all[len(all)-1][0])
		}
	}
	if last < 0 {
		return ""
	}
	lo := bytes.LastIndexByte(out[:last], '\n') + 1
	hi := bytes.IndexByte(out[last:], '\n')
	if hi < 0 {
		hi = len(out) - last
	}
	if lo < last-maxLine/2 {
		lo = last - maxLine/2 // a very long line: keep the words that matched
	}
	return printable(out[lo:min(last+hi, lo+maxLine)])
}

// Asked returns the size in MiB, rounded up, of the refused allocation in a line returned
// by Find, or 0 if the line does not say.
func (o *OOMLog) Asked(line string) int64 {
	m := o.size.FindStringSubmatch(line)
	if m == nil {
		return 0
	}
	n, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		return 0
	}
	shift := strings.Index("bkmgt", strings.ToLower(m[2][:1])) * 10 // PyTorch and TensorFlow count in powers of two, whatever their units say
	return int64(min(math.Ceil(math.Ldexp(n, shift-20)), 1<<20))    // no GPU has more than a TiB
}

// printable drops what a terminal would interpret.
func printable(line []byte) string {
	s := make([]byte, 0, len(line))
	for _, c := range line {
		if c >= ' ' && c < 0x7f {
			s = append(s, c)
		}
	}
	return string(bytes.TrimSpace(s))
}
