// Package config reads the configuration of the daemons: defaults, then a
// YAML file, then the environment, then flags; the later wins. It is strict,
// since a misspelt key that is silently ignored is noticed only when it
// hurts, and it reports every problem at once.
package config

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/safefile"
)

// Limits on a configuration file.
const (
	MaxFileBytes = 64 << 10
	MaxDepth     = 32
)

const envPrefix = "BERTH_"

// Override is a value from a flag. Lists are separated by commas, peers are
// written id=host:port.
type Override struct {
	Key, Value string
	// Flag is how the user wrote it, for messages: "--listen".
	Flag string
}

// Sources says where values come from.
type Sources struct {
	// Path is the file; "" means none.
	Path string
	// Env is the environment as os.Environ returns it. BERTH_SECTION_KEY
	// mirrors section.key. Variables that begin with BERTH_ but name no
	// section are ignored.
	Env []string
	// Overrides are applied last, in order.
	Overrides []Override
}

// Loaded is a configuration and where each of its values came from. The
// pointers are to one value that Print rereads; callers that change it
// print what they changed.
type Loaded[T Coordinator | Agent] struct {
	Config  *T
	table   table
	origins map[string]string
}

// LoadCoordinator reads and validates a coordinator's configuration. Errors
// in values are a Problems; a file that cannot be read gives an error that
// matches those of os and safefile.
func LoadCoordinator(src Sources) (*Loaded[Coordinator], error) {
	cfg := DefaultCoordinator()
	return load(&cfg, src, cfg.Validate)
}

// LoadAgent is LoadCoordinator for an agent.
func LoadAgent(src Sources) (*Loaded[Agent], error) {
	cfg := DefaultAgent()
	return load(&cfg, src, cfg.Validate)
}

func load[T Coordinator | Agent](cfg *T, src Sources, validate func() error) (*Loaded[T], error) {
	l := &layers{table: tableOf(cfg), origins: map[string]string{}}
	if src.Path != "" {
		data, err := safefile.Read(src.Path, MaxFileBytes)
		if err != nil {
			return nil, fmt.Errorf("configuration: %w", err)
		}
		if !l.file(src.Path, data) {
			return nil, l.problems // the rest would be guesses about an unreadable file
		}
	}
	l.env(src.Env)
	l.flags(src.Overrides)
	if err := validate(); err != nil {
		l.judged(err.(Problems))
	}
	if err := l.problems.err(); err != nil {
		return nil, err
	}
	return &Loaded[T]{Config: cfg, table: l.table, origins: l.origins}, nil
}

// Print writes one line per key: the key, its value, and where that came from.
func (l *Loaded[T]) Print(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "KEY\tVALUE\tFROM") // tabwriter keeps errors until Flush
	for _, key := range l.table.keys {
		from := cmp.Or(l.origins[key], "default")
		fmt.Fprintf(tw, "%s\t%s\t%s\n", key, formatValue(l.table.fields[key]), from)
	}
	if err := tw.Flush(); err != nil {
		return fmt.Errorf("print configuration: %w", err)
	}
	return nil
}

// layers is a configuration under construction.
type layers struct {
	table    table
	origins  map[string]string // key -> the last place that set it
	problems Problems
}

func (l *layers) add(where, key, format string, args ...any) {
	l.problems = append(l.problems, Problem{Key: key, Where: where, Text: fmt.Sprintf(format, args...)})
}

func (l *layers) env(environ []string) {
	byName := map[string]string{}
	sections := map[string]struct{}{}
	for _, key := range l.table.keys {
		byName[EnvName(key)] = key
		section, _, _ := strings.Cut(key, ".")
		sections[section] = struct{}{}
	}
	for _, line := range slices.Sorted(slices.Values(environ)) {
		name, value, _ := strings.Cut(line, "=")
		if !strings.HasPrefix(name, envPrefix) {
			continue
		}
		key, ok := byName[name]
		if !ok {
			section, _, nested := strings.Cut(strings.TrimPrefix(name, envPrefix), "_")
			if _, ours := sections[strings.ToLower(section)]; ours && nested {
				l.add("env", name, "is no setting%s", suggest(name, slices.Sorted(maps.Keys(byName))))
			}
			continue
		}
		l.setText("env "+name, key, value)
	}
}

func (l *layers) flags(overrides []Override) {
	for _, o := range overrides {
		where := "flag"
		if o.Flag != "" {
			where += " " + o.Flag
		}
		if _, ok := l.table.fields[o.Key]; !ok {
			l.add(where, o.Key, "is no setting%s", suggest(o.Key, l.table.keys))
			continue
		}
		l.setText(where, o.Key, o.Value)
	}
}

func (l *layers) setText(where, key, text string) {
	if err := setText(l.table.fields[key], text); err != nil {
		l.add(where, key, "%v", err)
		return
	}
	l.origins[key] = where
}

// judged adds the problems that Validate found, with the origin of each
// value, and leaves out those of keys that could not even be parsed.
func (l *layers) judged(found Problems) {
	unread := l.problems
	for _, p := range found {
		if slices.ContainsFunc(unread, func(u Problem) bool { return within(p.Key, u.Key) }) {
			continue
		}
		key, _, _ := strings.Cut(p.Key, "[")
		p.Where = l.origins[key]
		l.problems = append(l.problems, p)
	}
}

// within reports whether key is outer, or is inside it.
func within(key, outer string) bool {
	rest, ok := strings.CutPrefix(key, outer)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// EnvName returns the variable that sets key: listen.addr gives
// BERTH_LISTEN_ADDR.
func EnvName(key string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// suggest names the nearest of the known words, if one is near.
func suggest(word string, known []string) string {
	if len(word) > 100 { // a file may hold anything; known words are short
		return ""
	}
	best, at := 3, ""
	for _, k := range known {
		if d := cluster.EditDistance(word, k); d < best {
			best, at = d, k
		}
	}
	if at == "" {
		return ""
	}
	return "; did you mean " + strconv.Quote(at) + "?"
}
