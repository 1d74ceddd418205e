package lab

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-scheduler/berth/cmd/internal/cli"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/frame"
	"github.com/berth-scheduler/berth/cmd/internal/daemon"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"
	"github.com/berth-scheduler/berth/cmd/internal/top"
)

// newReferenceCmd prints the content of docs/reference.md and manual pages,
// for all programs as the one that users type.
func newReferenceCmd(e *console.Env, _ *client.Client) *cobra.Command {
	var man, slurmMan string
	cmd := &cobra.Command{
		Use: "reference [--man DIR] [--slurm-man DIR]", Short: "Print the command reference as Markdown or man pages", Hidden: true,
		Example: "  berth reference > reference.md\n  berth reference --man /usr/local/share/man/man1",
		Args:    console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if man != "" {
				if err := writeManual(whole(e), man); err != nil {
					return err
				}
			}
			if slurmMan != "" {
				if err := writeLookAlikes(cmd.Context(), e, slurmMan); err != nil {
					return err
				}
			}
			if man != "" || slurmMan != "" {
				return nil
			}
			e.Printf("%s", referenceText(whole(e)))
			return nil
		},
	}
	cmd.Flags().StringVar(&man, "man", "", "write a man page for each command to `DIR`")
	cmd.Flags().StringVar(&slurmMan, "slurm-man", "", "write a man page for each of Slurm's names to `DIR`")
	return cmd
}

// whole returns the tree of all commands, of every program.
func whole(e *console.Env) *cobra.Command {
	return frame.Tree(e, client.NewClient(e), cli.Program(), daemon.Program(), top.Program(), Program())
}

// shown returns a command's subcommands that help shows, by name.
func shown(cmd *cobra.Command) []*cobra.Command {
	subs := slices.DeleteFunc(slices.Clone(cmd.Commands()), func(c *cobra.Command) bool { return c.Hidden || c.Name() == "help" })
	slices.SortFunc(subs, func(a, b *cobra.Command) int { return strings.Compare(a.Name(), b.Name()) })
	return subs
}

// referenceText returns the reference as Markdown: a list of all commands,
// then each with its help.
func referenceText(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString("# Commands\n\nMade of the program itself: `make generate` writes it anew. `berth COMMAND --help` prints the same.\n" +
		"Slurm's look-alikes (`berth sbatch` and so on) are on [their own page](slurm.md).\n\n| command | what it does |\n| --- | --- |\n")
	var all []*cobra.Command
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range shown(c) {
			if !sub.HasAvailableSubCommands() || sub.Runnable() && sub.HasLocalFlags() {
				all = append(all, sub)
			}
			walk(sub)
		}
	}
	walk(root)
	for _, c := range all {
		fmt.Fprintf(&b, "| [`%s`](#%s) | %s |\n", c.CommandPath(), strings.ReplaceAll(c.CommandPath(), " ", "-"), strings.ReplaceAll(c.Short, "|", `\|`))
	}
	for _, c := range all {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n```text\n%s\n```\n", c.CommandPath(), about(c), strings.TrimSpace(usageText(c)))
	}
	b.WriteString("\n## Flags of every command\n\n```text\n" + strings.TrimRight(root.PersistentFlags().FlagUsages(), "\n") + "\n```\n")
	return b.String()
}

// about returns the beginning of a command's help.
func about(c *cobra.Command) string {
	if c.Long != "" {
		return strings.TrimSpace(c.Long)
	}
	return c.Short + "."
}

// usageText returns a command's usage: its line, examples and own flags.
func usageText(c *cobra.Command) string {
	var b strings.Builder
	b.WriteString(c.UseLine() + "\n")
	if len(c.Aliases) > 0 {
		b.WriteString("\nAliases: " + c.NameAndAliases() + "\n")
	}
	if c.Example != "" {
		b.WriteString("\nExamples:\n" + strings.TrimRight(c.Example, "\n") + "\n")
	}
	if flags := ownFlags(c).FlagUsages(); flags != "" {
		b.WriteString("\nFlags:\n" + flags)
	}
	return b.String()
}

// ownFlags returns the flags of a command alone, without --help.
func ownFlags(c *cobra.Command) *pflag.FlagSet {
	fs := pflag.NewFlagSet(c.Name(), pflag.ContinueOnError)
	fs.SortFlags = c.Flags().SortFlags
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" {
			fs.AddFlag(f)
		}
	})
	return fs
}

// writeManual writes berth.1 and a page for each command that help shows.
func writeManual(root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var list strings.Builder
	for _, c := range shown(root) {
		fmt.Fprintf(&list, "%-14s %s\n", c.Name(), c.Short)
		if err := writePage(dir, c); err != nil {
			return err
		}
	}
	page := manPage("berth", root.Short, root.Long, "berth COMMAND [FLAGS] [ARGUMENTS]", "COMMANDS", list.String())
	return os.WriteFile(filepath.Join(dir, "berth.1"), []byte(page), 0o644)
}

func writePage(dir string, c *cobra.Command) error {
	body := usageText(c)
	for _, sub := range shown(c) {
		body += "\n" + sub.CommandPath() + "\n\n" + about(sub) + "\n\n" + usageText(sub)
	}
	name := strings.ReplaceAll(c.CommandPath(), " ", "-")
	return os.WriteFile(filepath.Join(dir, name+".1"), []byte(manPage(name, c.Short, about(c), c.UseLine(), "USE", body)), 0o644)
}

// writeLookAlikes writes a page for each of Slurm's commands, from its help:
// it describes Berth's, even where Slurm's own is also installed.
func writeLookAlikes(ctx context.Context, e *console.Env, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range slurm.Commands() {
		var out, errs bytes.Buffer
		env := *e
		env.Stdout, env.Stderr, env.Out = &out, &errs, nil
		if code := frame.Execute(ctx, []string{name, "--help"}, &env, cli.Program()); code != 0 {
			return fmt.Errorf("berth %s --help: exit code %d: %s", name, code, errs.String())
		}
		short := ""
		for _, c := range whole(e).Commands() {
			if c.Name() == name {
				short = c.Short
			}
		}
		usage, text, _ := strings.Cut(out.String(), "\n")
		about, rest, _ := strings.Cut(strings.TrimSpace(text), "\n\n")
		page := manPage(name, short, about, strings.TrimPrefix(usage, "Usage: "), "USE", rest+
			"\n\nThis is Berth's "+name+": berth(1). What becomes of what Slurm does stands in /usr/share/doc/berth/docs/slurm.md.")
		if err := os.WriteFile(filepath.Join(dir, name+".1"), []byte(page), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// manPage returns a page in the man macro language.
func manPage(name, short, long, synopsis, section, body string) string {
	return fmt.Sprintf(".TH %s 1 \"\" berth\n.SH NAME\n%s \\- %s\n.SH SYNOPSIS\n%s\n.SH DESCRIPTION\n%s\n.SH %s\n.nf\n%s\n.fi\n",
		strings.ToUpper(name), name, roff(short), roff(synopsis), roff(strings.TrimSpace(long)), section, roff(strings.TrimRight(body, "\n")))
}

// roff escapes text: backslashes, typed hyphens, and lines that look like requests.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}
