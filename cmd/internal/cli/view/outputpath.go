package view

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// OutputPath resolves the name of a job's output file as the agent does:
// Slurm's patterns, then relative to the job's directory. A number between %
// and the letter pads with zeros, up to ten digits; a backslash anywhere turns
// patterns off.
func OutputPath(j *apiv1.Job, pattern string) (string, error) {
	name := expandPatterns(j, pattern)
	if name == "" {
		return "", fmt.Errorf("job %d has no output file", j.GetId())
	}
	if filepath.IsAbs(name) {
		return filepath.Clean(name), nil
	}
	return filepath.Join(string(j.GetSpec().GetDir()), name), nil
}

func expandPatterns(j *apiv1.Job, p string) string {
	if strings.Contains(p, `\`) {
		return strings.ReplaceAll(p, `\`, "")
	}
	var b strings.Builder
	for i := 0; i < len(p); i++ {
		k := i + 1
		for p[i] == '%' && k < len(p) && p[k] >= '0' && p[k] <= '9' {
			k++
		}
		val, number, ok := "", false, false
		if p[i] == '%' && k < len(p) {
			val, number, ok = patternValue(j, p[k])
		}
		if !ok {
			b.WriteByte(p[i])
			continue
		}
		width, _ := strconv.Atoi(p[i+1 : k])
		if number {
			b.WriteString(strings.Repeat("0", max(0, min(width, 10)-len(val))))
		}
		b.WriteString(val)
		i = k
	}
	return b.String()
}

// patternValue is what %c stands for. A job has one node, one task and one
// step; what is no task of an array, or several, has Slurm's 4294967294.
func patternValue(j *apiv1.Job, c byte) (val string, number, ok bool) {
	switch c {
	case '%':
		return "%", false, true
	case 'A':
		return strconv.FormatUint(cmp.Or(j.GetArrayJobId(), j.GetId()), 10), true, true
	case 'j', 'J':
		return strconv.FormatUint(j.GetId(), 10), true, true
	case 'a':
		if j.GetArrayJobId() == 0 || j.ArrayTaskId == nil || j.GetArrayCount() > 1 {
			return "4294967294", true, true
		}
		return strconv.FormatUint(uint64(j.GetArrayTaskId()), 10), true, true
	case 'n', 't', 's':
		return "0", true, true
	case 'x':
		return j.GetName(), false, true
	case 'u':
		return j.GetUser(), false, true
	case 'N':
		return j.GetNode(), false, true
	}
	return "", false, false
}
