package launch

import "strings"

// Environ is env with the lines of more, which win.
func Environ(env, more []string) []string {
	out := make([]string, 0, len(env)+len(more))
	for _, e := range env {
		key, _, _ := strings.Cut(e, "=")
		replaced := false
		for _, m := range more {
			replaced = replaced || strings.HasPrefix(m, key+"=")
		}
		if !replaced {
			out = append(out, e)
		}
	}
	return append(out, more...)
}

// ShellOf is the command that an Exec without arguments runs for a job with that
// environment on the node's own file system: the user's $SHELL, if it is a
// path.
func ShellOf(env []string) []string {
	shell := "/bin/sh"
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "SHELL="); ok && strings.HasPrefix(v, "/") {
			shell = v
		}
	}
	return []string{shell}
}
