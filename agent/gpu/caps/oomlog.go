package caps

import (
	"bytes"
	"regexp"
)

// TailBytes is how much of the end of a job's output is searched.
const TailBytes = 64 << 10

// OOMLog finds what frameworks print when an allocation on a GPU was refused.
// Make it with NewOOMLog; it is safe for concurrent use.
type OOMLog struct{ patterns []*regexp.Regexp }

// NewOOMLog returns a matcher of the messages of CUDA, cuBLAS, PyTorch,
// TensorFlow, JAX, CuPy and Triton. Each pattern names GPU memory by itself or
// comes from a library that has no other: a host's "Cannot allocate memory"
// or Python's MemoryError is none of them.
func NewOOMLog() *OOMLog {
	var o OOMLog
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

// maxLine bounds what is quoted of a line of output.
const maxLine = 200

// Find returns the last line of out that says that GPU memory ran out, made
// fit to print, or "". It looks at the last TailBytes of out only.
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

// printable drops what a terminal would act on.
func printable(line []byte) string {
	s := make([]byte, 0, len(line))
	for _, c := range line {
		if c >= ' ' && c < 0x7f {
			s = append(s, c)
		}
	}
	return string(bytes.TrimSpace(s))
}
