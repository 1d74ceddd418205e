package sbatch

import (
	"fmt"
	"strings"
)

// ArgKind says whether an option takes a value.
type ArgKind uint8

// The kinds of options. An optional value follows = or, for a short option, its letter.
const (
	NoArg ArgKind = iota
	NeedsArg
	MayArg
)

// Option is the spelling of one option.
type Option struct {
	Name  string
	Short byte
	Arg   ArgKind
}

// Setting is an option as given.
type Setting struct {
	Name  string
	Value string
	// Own says that the option is one of Berth's flags.
	Own  bool
	From Origin
}

// Source is where a setting comes from, the weakest first.
type Source uint8

// The sources; later ones override earlier ones.
const (
	FromSlurmLine Source = iota
	FromEnvironment
	FromBerthLine
	FromCommandLine
)

// Origin is where one setting came from: a line of the script, or a variable.
type Origin struct {
	Source   Source
	Line     int
	Variable string
}

// String returns the origin in the form that begins messages: "line 3", "$SBATCH_GRES".
func (o Origin) String() string {
	switch o.Source {
	case FromEnvironment:
		return "$" + o.Variable
	case FromCommandLine:
		return "command line"
	default:
		return fmt.Sprintf("line %d", o.Line)
	}
}

// Fault is something that cannot be parsed. Msg is in sbatch's words if it
// has any; Fix is what to write instead, if known.
type Fault struct {
	From Origin
	Msg  string
	Fix  string
}

// Scan parses words as getopt_long does: long options may be abbreviated
// while unique, short ones clustered with their value, and a value may be the
// next word, whatever it looks like. own are options beyond those of sbatch;
// with ownFirst they win if both have the name. Scanning ends at the first
// word that is not an option, or after --, and rest is what is left from
// there on. In directives nothing may be left.
func Scan(words []Word, source Source, own []Option, ownFirst bool) (set []Setting, faults []Fault, rest []Word) {
	s := scanner{words: words, source: source, own: own, ownFirst: ownFirst}
	for s.at < len(s.words) {
		w := s.words[s.at].Text
		switch {
		case w == "--":
			s.at++
			return s.finish()
		case strings.HasPrefix(w, "--"):
			s.long(w[2:])
		case len(w) > 1 && w[0] == '-':
			s.short(w[1:])
		default:
			return s.finish()
		}
	}
	return s.finish()
}

type scanner struct {
	words    []Word
	source   Source
	own      []Option
	ownFirst bool
	at       int
	set      []Setting
	faults   []Fault
}

func (s *scanner) finish() ([]Setting, []Fault, []Word) {
	rest := s.words[s.at:]
	if s.source != FromCommandLine && len(rest) > 0 {
		s.faults = append(s.faults, Fault{s.origin(s.at), "Invalid directive found in batch script: " + rest[0].Text, fixWord(rest[0].Text)})
	}
	return s.set, s.faults, rest
}

func (s *scanner) origin(at int) Origin { return Origin{Source: s.source, Line: s.words[at].Line} }

func (s *scanner) fault(at int, format string, args ...any) {
	s.faults = append(s.faults, Fault{From: s.origin(at), Msg: fmt.Sprintf(format, args...)})
}

// tables lists the options in search order.
func (s *scanner) tables() [2][]Option {
	if s.ownFirst {
		return [2][]Option{s.own, slurmOptions}
	}
	return [2][]Option{slurmOptions, s.own}
}

func (s *scanner) isOwn(table int) bool { return (table == 0) == s.ownFirst }

func (s *scanner) long(text string) {
	at := s.at
	s.at++
	name, value, given := strings.Cut(text, "=")
	opt, own, like := s.findLong(name)
	switch {
	case len(like) > 1:
		s.fault(at, "option '--%s' is ambiguous; possibilities: '--%s'", text, strings.Join(like, "' '--"))
		return
	case opt == nil:
		s.fault(at, "unrecognized option '--%s'", text)
		s.faults[len(s.faults)-1].Fix = fixOption(name)
		return
	case given && opt.Arg == NoArg:
		s.fault(at, "option '--%s' doesn't allow an argument", opt.Name)
		return
	case !given && opt.Arg == NeedsArg:
		if s.at == len(s.words) {
			s.fault(at, "option '--%s' requires an argument", opt.Name)
			return
		}
		value = s.words[s.at].Text
		s.at++
	}
	s.set = append(s.set, Setting{Name: opt.Name, Value: value, Own: own, From: s.origin(at)})
}

// findLong returns the option of that name, or the only one with that
// prefix, or the names of all that have it.
func (s *scanner) findLong(name string) (opt *Option, own bool, like []string) {
	for t, table := range s.tables() {
		for i := range table {
			if table[i].Name == name {
				return &table[i], s.isOwn(t), nil
			}
		}
	}
	for t, table := range s.tables() {
		like = nil
		for i := range table {
			if strings.HasPrefix(table[i].Name, name) {
				opt, own, like = &table[i], s.isOwn(t), append(like, table[i].Name)
			}
		}
		if len(like) > 0 {
			break
		}
	}
	if len(like) == 1 {
		return opt, own, nil
	}
	return nil, false, like
}

// short parses a cluster such as Hn4: H and n with the value 4.
func (s *scanner) short(cluster string) {
	at := s.at
	s.at++
	for i := 0; i < len(cluster); i++ {
		opt, own := s.findShort(cluster[i])
		if opt == nil {
			s.fault(at, "invalid option -- '%c'", cluster[i])
			continue
		}
		set := Setting{Name: opt.Name, Own: own, From: s.origin(at)}
		if opt.Arg != NoArg {
			set.Value = cluster[i+1:]
			if set.Value == "" && opt.Arg == NeedsArg {
				if s.at == len(s.words) {
					s.fault(at, "option requires an argument -- '%c'", cluster[i])
					return
				}
				set.Value = s.words[s.at].Text
				s.at++
			}
			s.set = append(s.set, set)
			return
		}
		s.set = append(s.set, set)
	}
}

func (s *scanner) findShort(c byte) (*Option, bool) {
	for t, table := range s.tables() {
		for i := range table {
			if table[i].Short == c {
				return &table[i], s.isOwn(t)
			}
		}
	}
	return nil, false
}

// FromEnv reads the SBATCH_* variables in environ, in the order of the
// table. They override directives, as with sbatch.
func FromEnv(environ []string) []Setting {
	value := map[string]string{}
	for _, line := range environ {
		if name, v, ok := strings.Cut(line, "="); ok {
			value[name] = v
		}
	}
	var out []Setting
	for _, v := range envOptions {
		text, ok := value[v.variable]
		if !ok {
			continue
		}
		// The variable of an option without a value only has to be set.
		if o := slurmOption(v.option); o.Arg == NoArg {
			text = ""
		}
		out = append(out, Setting{Name: v.option, Value: text, From: Origin{Source: FromEnvironment, Variable: v.variable}})
	}
	return out
}

func slurmOption(name string) *Option {
	for i := range slurmOptions {
		if slurmOptions[i].Name == name {
			return &slurmOptions[i]
		}
	}
	panic("sbatch: no option --" + name) // a row of envOptions is wrong
}
