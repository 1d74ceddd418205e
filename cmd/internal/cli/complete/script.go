package complete

import (
	_ "embed"
	"slices"
	"strings"
)

var (
	//go:embed berth.bash
	bash string
	//go:embed berth.zsh
	zsh string
	//go:embed berth.fish
	fish string
)

// Shells returns the shells for which a script exists.
func Shells() []string { return []string{"bash", "zsh", "fish"} }

// Script returns the script that makes a shell complete berth, and links,
// Slurm's commands that lead to it; false for another shell. It needs nothing
// else installed.
func Script(shell string, links []string) (string, bool) {
	i := slices.Index(Shells(), shell)
	if i < 0 {
		return "", false
	}
	return strings.ReplaceAll([]string{bash, zsh, fish}[i], "@LINKS@", strings.Join(links, " ")), true
}
