package console

import (
	"bufio"
	"fmt"
	"strings"
)

// Confirm asks on a terminal and returns nil for yes; elsewhere it requires
// the flag --yes.
func Confirm(e *Env, yes bool, question string) error {
	if yes {
		return nil
	}
	if !e.IsTerminal {
		return Usagef("%s Confirm with --yes", question)
	}
	if _, err := fmt.Fprintf(e.Stderr, "%s [y/N] ", Escape(question)); err != nil {
		return err
	}
	answer, _ := bufio.NewReader(e.Stdin).ReadString('\n') // no answer means no
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return &ExitError{Code: ExitFailed, Err: fmt.Errorf("not confirmed; nothing was done")}
}
