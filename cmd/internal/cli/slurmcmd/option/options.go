package option

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/sbatch"
	"github.com/berth-scheduler/berth/cmd/internal/slurm/text"
)

// Marks on the options of Slurm's commands, and some shared texts.
const (
	MarkRefused  = "refused"  // why it is not supported
	MarkIgnored  = "ignored"  // why it has no effect
	markVariable = "variable" // the variable that replaces it when not given
	MarkUnless   = "unless"   // other options that override the variable
	MarkAlone    = "alone"    // may be given without its value
	markCluster  = "cluster"  // names clusters
	markHeaded   = "headed"   // and prints them above the table
	OneCluster   = "there is only one cluster"
	NothingHides = "no partition is hidden"
)

// ClusterName is the cluster's name as given to jobs and Slurm's commands.
const ClusterName = sbatch.ClusterName

// Mark puts a mark on an option.
func Mark(fs *pflag.FlagSet, name, mark string, values ...string) {
	if len(values) == 0 {
		values = []string{"yes"}
	}
	if err := fs.SetAnnotation(name, mark, values); err != nil {
		panic(err) // a name that the caller has just defined
	}
}

// Refuse adds an unsupported option of Slurm's, and what to do instead;
// takes says whether it has a value.
func Refuse(fs *pflag.FlagSet, name, short string, takes bool, why string) {
	bareOption(fs, name, short, takes, "refused: "+why)
	Mark(fs, name, MarkRefused, why)
}

// Ignore adds options of Slurm's that have no effect.
func Ignore(fs *pflag.FlagSet, why string, names ...string) {
	for _, name := range names {
		long, short, _ := strings.Cut(name, ",")
		bareOption(fs, long, short, false, "accepted for compatibility: "+why)
		Mark(fs, long, MarkIgnored, why)
	}
}

func bareOption(fs *pflag.FlagSet, name, short string, takes bool, usage string) {
	if takes {
		fs.StringP(name, short, "", usage)
		return
	}
	fs.BoolP(name, short, false, usage)
}

// Clusters adds -M: it may name this cluster, and no other.
func Clusters(fs *pflag.FlagSet) {
	fs.StringP("clusters", "M", "", "accepted for compatibility: "+OneCluster+", called "+ClusterName)
	Mark(fs, "clusters", markCluster)
	Mark(fs, "clusters", MarkIgnored, OneCluster+", `"+ClusterName+"`; others are refused as Slurm does")
}

// Headed makes the command print the name of a cluster given with -M above
// its table, as squeue and sinfo do.
func Headed(fs *pflag.FlagSet) { Mark(fs, "clusters", markHeaded) }

// heading returns the line above the table, "" if there is none.
func heading(fs *pflag.FlagSet) string {
	f := fs.Lookup("clusters")
	if f == nil || !f.Changed || f.Annotations[markHeaded] == nil || fs.Changed("noheader") || fs.Changed("json") {
		return ""
	}
	return "CLUSTER: " + ClusterName + "\n"
}

// OfClusters ignores the options for federations of clusters.
func OfClusters(fs *pflag.FlagSet, names ...string) { Ignore(fs, OneCluster, names...) }

// Variables declares the variables that replace options not given, as NAME=OPTION.
func Variables(fs *pflag.FlagSet, pairs ...string) {
	for _, p := range pairs {
		name, option, _ := strings.Cut(p, "=")
		Mark(fs, option, markVariable, name)
	}
}

// settleOptions gives options that were not given the values of their
// variables, and refuses unsupported ones.
func settleOptions(e *console.Env, fs *pflag.FlagSet) error {
	has := map[string]bool{} // whether it has a value
	fs.Visit(func(f *pflag.Flag) { has[f.Name] = true })
	var fault error
	fs.VisitAll(func(f *pflag.Flag) {
		changed := has[f.Name]
		taken := changed || slices.ContainsFunc(f.Annotations[MarkUnless], func(o string) bool { return has[o] })
		for _, v := range f.Annotations[markVariable] {
			value := e.Getenv(v)
			if taken || value == "" {
				continue
			}
			if f.Value.Type() == "bool" { // being set is enough
				value = "true"
			}
			has[f.Name] = true
			if err := f.Value.Set(value); err != nil && fault == nil {
				fault = fmt.Errorf("$%s: %w", v, err)
			}
		}
		switch why := f.Annotations[MarkRefused]; {
		case fault != nil || !changed:
		case why != nil:
			fault = fmt.Errorf("--%s: %s", f.Name, why[0])
		case f.Annotations[markCluster] != nil:
			fault = otherCluster(f.Value.String())
		}
	})
	return fault
}

// otherCluster returns Slurm's words for a cluster that is not this one.
func otherCluster(names string) error {
	for _, n := range List(names) {
		if n != ClusterName && n != "all" {
			return text.Message(fmt.Sprintf("'%s' can't be reached now, or it is an invalid entry for --cluster.  Use 'sacctmgr list clusters' to see available clusters.", console.Escape(n)))
		}
	}
	return nil
}

// spelled rewrites for pflag what getopt accepts in addition: long options
// abbreviated while unique, and some that may be given without a value.
func spelled(fs *pflag.FlagSet, args []string) []string {
	out := make([]string, 0, len(args))
	for i := 0; i < len(args); i++ {
		a := args[i]
		if a == "--" {
			return append(out, args[i:]...)
		}
		f, word := wanting(fs, a)
		switch {
		case f == nil:
			out = append(out, word)
		case i+1 < len(args) && (f.Annotations[MarkAlone] == nil || !strings.HasPrefix(args[i+1], "-")):
			out = append(out, word, args[i+1])
			i++
		case f.Annotations[MarkAlone] != nil:
			out = append(out, "--"+f.Name+"=")
		default:
			out = append(out, word)
		}
	}
	return out
}

// wanting returns the option whose value is the next word, nil if there is
// none; and the word with its name in full.
func wanting(fs *pflag.FlagSet, word string) (*pflag.Flag, string) {
	if name, ok := strings.CutPrefix(word, "--"); ok {
		name, value, has := strings.Cut(name, "=")
		f := optionNamed(fs, name)
		if f == nil {
			return nil, word
		}
		if has {
			return nil, "--" + f.Name + "=" + value
		}
		if f.NoOptDefVal != "" {
			return nil, "--" + f.Name
		}
		return f, "--" + f.Name
	}
	if len(word) < 2 || word[0] != '-' {
		return nil, word
	}
	for i := 1; i < len(word); i++ {
		f := fs.ShorthandLookup(word[i : i+1])
		if f == nil || f.NoOptDefVal == "" && i+1 < len(word) {
			return nil, word
		}
		if f.NoOptDefVal == "" {
			return f, word
		}
	}
	return nil, word
}

// optionNamed returns the option of a long name, or of a prefix of one.
func optionNamed(fs *pflag.FlagSet, name string) *pflag.Flag {
	if f := fs.Lookup(name); f != nil || name == "" {
		return f
	}
	var found []*pflag.Flag
	fs.VisitAll(func(f *pflag.Flag) {
		if strings.HasPrefix(f.Name, name) {
			found = append(found, f)
		}
	})
	if len(found) != 1 {
		return nil
	}
	return found[0]
}

// Repeat calls do once, or repeatedly at the interval of -i, in seconds;
// dated says whether each time is headed by the date.
func Repeat(ctx context.Context, e *console.Env, every string, dated bool, do func() error) error {
	if every == "" {
		return do()
	}
	n, err := strconv.Atoi(every)
	if err != nil || n < 1 || n > 1<<20 {
		return text.Message("--iterate=" + every)
	}
	for {
		if dated {
			e.Printf("%s\n", e.Now().Format("Mon Jan 02 15:04:05 2006"))
		}
		if err := do(); err != nil {
			return err
		}
		e.Printf("\n")
		if err := e.Flush(); err != nil {
			return err
		}
		if !wait.Sleep(ctx, time.Duration(n)*time.Second) {
			return context.Cause(ctx)
		}
	}
}
