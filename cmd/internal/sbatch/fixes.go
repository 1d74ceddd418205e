package sbatch

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/units"
)

// elsewhere maps options of plugins and other programs that people write on
// #SBATCH lines to their equivalents.
var elsewhere = sync.OnceValue(func() map[string]string {
	return map[string]string{
		"container-image":      "name the image on a line that only Berth reads: #BERTH --image=REFERENCE",
		"container-mounts":     "#BERTH --mount=PATH, once per path",
		"container-workdir":    "--chdir=PATH",
		"container-name":       "images are cached on their node; #BERTH --image=REFERENCE",
		"container-mount-home": "#BERTH --mount=PATH of the home directory",
		"pty":                  "berth shell, or srun --pty, outside of a script",
		"mpi":                  "this is an option of srun",
		"cpu-bind":             "this is an option of srun",
		"gpu-mem":              "#BERTH --gpu-mem=SIZE",
		"walltime":             "--time",
		"queue":                "--partition",
		"email":                "--mail-user",
		"memory":               "--mem",
		"cpus":                 "--cpus-per-task",
		"ncpus":                "--cpus-per-task",
		"gpu":                  "--gpus",
		"ngpus":                "--gpus",
		"name":                 "--job-name",
	}
})

// fixOption suggests what to write for an option that does not exist.
func fixOption(name string) string {
	name = strings.ToLower(strings.ReplaceAll(name, "_", "-"))
	if slurmOptionNamed(name) {
		return "--" + name
	}
	if fix, ok := elsewhere()[name]; ok {
		return fix
	}
	best, least := "", 3
	for _, o := range slurmOptions {
		if d := cluster.EditDistance(name, o.Name); d < least {
			best, least = o.Name, d
		}
	}
	if best == "" || least > len(name)/3 {
		return ""
	}
	return "--" + best + "?"
}

func slurmOptionNamed(name string) bool {
	return slices.ContainsFunc(slurmOptions, func(o Option) bool { return o.Name == name })
}

// fixWord suggests what to write for a word that is not an option.
func fixWord(word string) string {
	r, size := utf8.DecodeRuneInString(word)
	switch {
	case strings.ContainsAny(word[:size], "–—−‐‑"):
		return "an editor turned the hyphens into a dash: --" + strings.TrimLeft(word, "–—−‐‑-")
	case r == '\u00a0' || r == '\u2007' || r == '\u202f' || r == '\ufeff':
		return "it begins with a special space (U+00A0 or similar): retype it"
	case strings.Contains(word, "="):
		name, _, _ := strings.Cut(word, "=")
		if slurmOptionNamed(strings.ToLower(name)) {
			return "--" + word
		}
	}
	return ""
}

var gib = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[0-9]+ ?[kKmMgGtT][iI][bB]$`)
})

// fixValue suggests how to write a value that sbatch cannot parse.
func fixValue(option, v string) string {
	switch option {
	case "time", "time-min":
		if d, err := units.ParseDuration(strings.ToLower(v)); err == nil {
			return "--" + option + "=" + units.FormatDuration(d)
		}
	case "mem", "mem-per-cpu", "mem-per-gpu":
		if gib().MatchString(v) {
			return "--" + option + "=" + strings.ToUpper(strings.ReplaceAll(v[:len(v)-2], " ", ""))
		}
	}
	return ""
}

// unexpanded reports what in the value of a directive only a shell would expand.
func unexpanded(s Setting) string {
	if s.From.Source != FromSlurmLine && s.From.Source != FromBerthLine || s.Name == "comment" || s.Name == "wrap" {
		return ""
	}
	if i := strings.IndexByte(s.Value, '$'); i >= 0 {
		return "no shell reads directives: " + variable().FindString(s.Value[i:]) + " stays as it is, for sbatch as well"
	}
	if strings.HasPrefix(s.Value, "~") {
		return "no shell reads directives: ~ stays as it is, for sbatch as well"
	}
	return ""
}

var variable = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^\$(\{[^}]*\}?|[A-Za-z0-9_]*|\([^)]*\)?)`)
})

// written returns the setting as it may be typed again.
func written(s Setting) string {
	if s.Value == "" {
		return "--" + s.Name
	}
	return "--" + s.Name + "=" + s.Value
}
