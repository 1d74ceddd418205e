package cli

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// outputPath resolves the name of a job's output file as the agent does:
// Slurm's patterns, then relative to the job's directory. %n and %t count
// nodes and tasks, of which a job has one.
func outputPath(j *apiv1.Job, pattern string) (string, error) {
	attempt := uint64(1)
	if n := len(j.GetAttempts()); n > 0 {
		attempt = uint64(j.GetAttempts()[n-1].GetNo())
	}
	id := strconv.FormatUint(j.GetId(), 10)
	var b strings.Builder
	for i := 0; i < len(pattern); i++ {
		if pattern[i] != '%' || i+1 == len(pattern) {
			b.WriteByte(pattern[i])
			continue
		}
		i++
		width := i
		for i < len(pattern)-1 && pattern[i] >= '0' && pattern[i] <= '9' {
			i++
		}
		pad, _ := strconv.Atoi(pattern[width:i])
		switch pattern[i] {
		case '%':
			b.WriteByte('%')
		case 'j', 'A', 'J':
			fmt.Fprintf(&b, "%0*d", min(pad, 10), j.GetId())
		case 'a':
			fmt.Fprintf(&b, "%0*d", min(pad, 10), attempt)
		case 'n', 't', 's':
			fmt.Fprintf(&b, "%0*d", min(pad, 10), 0)
		case 'x':
			b.WriteString(j.GetName())
		case 'u':
			b.WriteString(j.GetUser())
		case 'N':
			b.WriteString(j.GetNode())
		default:
			b.WriteString("%" + pattern[width:i+1])
		}
	}
	name := b.String()
	if name == "" {
		return "", fmt.Errorf("job %s has no output file", id)
	}
	if filepath.IsAbs(name) {
		return filepath.Clean(name), nil
	}
	return filepath.Join(string(j.GetSpec().GetDir()), name), nil
}
