// Package complete proposes words at the cursor: jobs, nodes, GPU types,
// partitions and others as the coordinators know them now, depending on the
// option or command. It also holds the shells' scripts, which ask through
// cobra's hidden command __complete, which sees the whole tree of commands.
package complete

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
)

// patience bounds the wait for a coordinator: without one, or with a slow
// one, nothing is proposed.
const patience = time.Second

// byOption names what an option takes, in any command. Options that take
// lists are completed item by item.
var byOption = map[string]source{
	"gpu-type": gpuTypes, "partition": partitions, "account": accounts, "qos": qos, "reservation": reservations,
	"node": nodes, "nodes-named": nodes, "nodelist": nodes, "exclude": nodes, "state": states, "states": states,
	"job": jobs, "jobs": jobs, "jobid": jobs, "array-job": jobs, "user": nil,
}

// byLetter are the short options of Slurm's commands.
var byLetter = map[string]string{"-p": "partition", "-A": "account", "-q": "qos", "-w": "nodelist", "-x": "exclude", "-t": "states", "-j": "jobs"}

// words returns a source that asks no coordinator.
func words(of ...string) source {
	return func(context.Context, *console.Env, *client.Client) []string { return slices.Clone(of) }
}

// listedWords matches the words listed in an option's help: output `FORMAT`:
// table, json.
var listedWords = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile("`[A-Z]+`: ([a-z0-9-]+(?:, [a-z0-9-]+)+)(?:$|[;. (])")
})

// wordsOf returns the words listed in an option's help, nil for none.
func wordsOf(f *pflag.Flag) source {
	if m := listedWords().FindStringSubmatch(f.Usage); m != nil {
		return words(slices.DeleteFunc(strings.Split(m[1], ", "), func(w string) bool { return w == "or" })...)
	}
	return nil
}

// byCommand names what follows a command, by its words after the program's name.
var byCommand = map[string]source{
	"show": jobs, "why": jobs, "wait": jobs, "logs": jobs, "shell": jobs, "exec": jobs, "signal": jobs, "tunnel": jobs, "eff": jobs,
	"cancel": jobs, "hold": jobs, "release": jobs, "requeue": jobs, "update": jobs, "queue": jobs,
	"scancel": jobs, "seff": jobs, "scontrol show job": jobs, "scontrol hold": jobs, "scontrol release": jobs, "scontrol requeue": jobs,
	"scontrol show node": nodes, "scontrol show partition": partitions, "scontrol show reservation": reservations,
	"node show": nodes, "node drain": nodes, "node resume": nodes, "node power-down": nodes, "node power-up": nodes, "node fence": nodes, "node remove": nodes,
	"gpu list": nodes, "partition show": partitions, "partition list": partitions, "partition set": partitions, "partition remove": partitions,
	"reservation show": reservations, "reservation update": reservations, "reservation remove": reservations,
	"account show": accounts, "account set": accounts, "account remove": accounts, "qos set": qos, "qos remove": qos,
	"completion": words(Shells()...),
}

// byWord names what directly follows certain commands, and nothing further.
var byWord = map[string]source{
	"scontrol":      words("show", "hold", "release", "requeue", "requeuehold", "update", "create", "delete", "ping", "top", "wait_job", "version"),
	"scontrol show": words("config", "hostlist", "hostlistsorted", "hostnames", "job", "node", "partition", "reservation", "topology"),
}

// Attach enables completion of the commands below root. options are those of
// commands that parse their options themselves and declare them nowhere else,
// by name.
func Attach(root *cobra.Command, e *console.Env, c *client.Client, options map[string]func() []string) {
	timeout := c.Timeout
	ask := func(s source, word string) ([]string, cobra.ShellCompDirective) {
		c.Timeout = patience
		defer func() { c.Timeout = timeout }()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		return listed(s(ctx, e, c), word), cobra.ShellCompDirectiveNoFileComp
	}
	var attach func(cmd *cobra.Command)
	attach = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			attach(sub)
		}
		_, words, _ := strings.Cut(cmd.CommandPath(), " ")
		if cmd.DisableFlagParsing {
			names := options[cmd.Name()]
			cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
				return slurmWord(words, names, args, word, ask)
			}
			return
		}
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			s := byOption[f.Name]
			if s == nil {
				s = wordsOf(f)
			}
			if s != nil {
				_ = cmd.RegisterFlagCompletionFunc(f.Name, func(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
					return ask(s, word)
				})
			}
		})
		if s := byCommand[words]; s != nil {
			cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
				found, how := ask(s, word)
				return slices.DeleteFunc(found, func(line string) bool { return slices.Contains(args, value(line)) }), how
			}
		}
	}
	attach(root)
}

// slurmWord completes a word of one of Slurm's commands, whose options are
// written as --name=value, --name value or -n value.
func slurmWord(command string, options func() []string, args []string, word string, ask func(source, string) ([]string, cobra.ShellCompDirective)) ([]string, cobra.ShellCompDirective) {
	if name, val, ok := strings.Cut(word, "="); ok && strings.HasPrefix(name, "--") {
		s := byOption[name[2:]]
		if s == nil {
			return nil, cobra.ShellCompDirectiveDefault
		}
		found, how := ask(s, val)
		for i := range found {
			found[i] = name + "=" + found[i]
		}
		return found, how
	}
	if n := len(args); n > 0 {
		before := args[n-1]
		if long := byLetter[before]; long != "" {
			before = "--" + long
		}
		if s := byOption[strings.TrimPrefix(before, "--")]; s != nil && strings.HasPrefix(before, "--") {
			return ask(s, word)
		}
	}
	if strings.HasPrefix(word, "-") {
		var found []string
		if options != nil { // else cobra knows them
			for _, name := range options() {
				found = append(found, "--"+name)
			}
		}
		slices.Sort(found)
		return found, cobra.ShellCompDirectiveNoFileComp
	}
	if s := byWord[strings.Join(append([]string{command}, args...), " ")]; s != nil {
		return ask(s, word)
	}
	for n := len(args); n >= 0; n-- {
		if s := byCommand[strings.Join(append([]string{command}, args[:n]...), " ")]; s != nil {
			return ask(s, word)
		}
	}
	return nil, cobra.ShellCompDirectiveDefault
}

// listed prefixes each of found with what precedes the last comma of word.
func listed(found []string, word string) []string {
	i := strings.LastIndexByte(word, ',') + 1
	found = asArrays(found, word[i:])
	if i == 0 {
		return found
	}
	there := strings.Split(word[:i-1], ",")
	found = slices.DeleteFunc(found, func(line string) bool { return slices.Contains(there, value(line)) })
	for k := range found {
		found[k] = word[:i] + found[k]
	}
	return found
}

// asArrays leaves out the tasks of arrays, 12_3, if the whole array is
// listed, until the user begins to type a task.
func asArrays(found []string, word string) []string {
	if strings.Contains(word, "_") {
		return found
	}
	whole := map[string]bool{}
	for _, line := range found {
		whole[value(line)] = true
	}
	return slices.DeleteFunc(found, func(line string) bool {
		array, _, task := strings.Cut(value(line), "_")
		return task && strings.Trim(array, "0123456789") == "" && whole[array]
	})
}

// value returns a proposal without its description.
func value(line string) string {
	v, _, _ := strings.Cut(line, "\t")
	return v
}
