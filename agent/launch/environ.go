package launch

import "strings"

// Environ returns env with the entries of more, which win.
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

// ShellOf returns the command that an Exec without arguments runs for a host job with that
// environment: the user's $SHELL, if it is a path.
func ShellOf(env []string) []string {
	shell := "/bin/sh"
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "SHELL="); ok && strings.HasPrefix(v, "/") {
			shell = v
		}
	}
	return []string{shell}
}
