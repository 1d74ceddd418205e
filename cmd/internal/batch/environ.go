package batch

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/escape"
)

// Variables of this login session, or that the agent sets for each job, which
// never travel. Each submit checks each variable: hence no regular
// expressions, which take longer to compile than everything else here.
var (
	sessionVars = names{"_", "SHLVL", "OLDPWD", "PWD", "SSH_*", "DBUS_SESSION_*", "DISPLAY", "WINDOWID", "XAUTHORITY",
		"XDG_SESSION*", "XDG_SEAT*", "XDG_VTNR*", "XDG_RUNTIME*", "TMUX*", "STY", "BERTH_*", "SLURM_*", "CUDA_VISIBLE_DEVICES",
		"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_REQUIRE_*"} // set by the shell's own container
	// loaderVars change how programs are loaded or which devices a container
	// gets: they must not reach what the agent starts.
	loaderVars = names{"LD_PRELOAD", "LD_AUDIT", "LD_DEBUG*", "LD_PROFILE*", "GLIBC_TUNABLES", "GCONV_PATH",
		"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_REQUIRE_*"}
	secretWords = []string{"SECRET", "PASSWD", "PASSWORD", "API_KEY", "APIKEY", "PRIVATE_KEY", "PRIVATEKEY", "CREDENTIAL"}
	secretArgs  = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)^--?[a-z-]*(secret|passw(or)?d|token|api-?key|private-?key)[a-z-]*=.`)
	})
)

// names are names of variables; a trailing star matches any text.
type names []string

func (n names) has(name string) bool {
	return slices.ContainsFunc(n, func(s string) bool {
		begin, any := strings.CutSuffix(s, "*")
		return name == s || any && strings.HasPrefix(name, begin)
	})
}

// secretVar reports whether a variable looks like a secret.
func secretVar(name string) bool {
	name = strings.ToUpper(name)
	return name == "TOKEN" || strings.HasSuffix(name, "_TOKEN") || slices.ContainsFunc(secretWords, func(w string) bool { return strings.Contains(name, w) })
}

// Environment builds the environment of a job from --export: ALL, NONE, or a
// list of NAME and NAME=value that may begin with ALL. File entries come last
// and win. Warnings name what was left out.
func Environment(environ []string, export string, file []string) (env, warnings []string, err error) {
	chosen, err := exported(environ, export)
	if err != nil {
		return nil, nil, err
	}
	for _, line := range file {
		chosen = setVar(chosen, line)
	}
	var dropped, long []string
	for _, line := range chosen {
		name, _, _ := strings.Cut(line, "=")
		switch {
		case loaderVars.has(name):
			dropped = append(dropped, name)
		case len(line) > cluster.MaxEnvLine:
			long = append(long, name)
		default:
			env = append(env, line)
		}
	}
	if len(dropped) > 0 {
		warnings = append(warnings, "not passed to the job, since it changes how programs are loaded: "+strings.Join(dropped, ", "))
	}
	if len(long) > 0 {
		warnings = append(warnings, "not passed to the job, since it is longer than 4 KiB: "+strings.Join(long, ", "))
	}
	if len(env) > cluster.MaxEnv {
		return nil, nil, fmt.Errorf("--export: %d environment variables, at most %d are allowed; name those that the job needs, such as --export PATH,HOME", len(env), cluster.MaxEnv)
	}
	return env, warnings, nil
}

func exported(environ []string, export string) ([]string, error) {
	all := environ
	export = cmp.Or(export, "ALL")
	if export == "NONE" {
		return nil, nil
	}
	var out []string
	for item := range strings.SplitSeq(export, ",") {
		name, _, assigned := strings.Cut(item, "=")
		switch {
		case item == "ALL":
			for _, line := range all {
				n, _, ok := strings.Cut(line, "=")
				if ok && n != "" && !sessionVars.has(n) {
					out = setVar(out, line)
				}
			}
		case item == "NONE":
			return nil, fmt.Errorf("--export %s: NONE stands alone", escape.Quote(export))
		case name == "":
			return nil, fmt.Errorf("--export %s: want ALL, NONE or a list such as PATH,HOME or ALL,DEBUG=1", escape.Quote(export))
		case assigned:
			out = setVar(out, item)
		default:
			for _, line := range all {
				if strings.HasPrefix(line, name+"=") {
					out = setVar(out, line)
				}
			}
		}
	}
	return out, nil
}

// setVar replaces the variable named in line, or adds it.
func setVar(env []string, line string) []string {
	name, _, _ := strings.Cut(line, "=")
	i := slices.IndexFunc(env, func(l string) bool { return strings.HasPrefix(l, name+"=") })
	if i < 0 {
		return append(env, line)
	}
	env[i] = line
	return env
}

// SecretsWarning names variables and arguments that look like secrets, once
// for all jobs of a submit; "" if there are none.
func SecretsWarning(env, command []string) string {
	var found []string
	for _, line := range env {
		if name, value, _ := strings.Cut(line, "="); value != "" && secretVar(name) {
			found = append(found, name)
		}
	}
	for _, arg := range command {
		if strings.HasPrefix(arg, "-") && secretArgs().MatchString(arg) {
			name, _, _ := strings.Cut(arg, "=")
			found = append(found, name)
		}
	}
	if len(found) == 0 {
		return ""
	}
	return "stored with the job and shown to administrators, though it looks secret: " + strings.Join(found, ", ") +
		"; a file that only you can read, or --export, keeps it out"
}
