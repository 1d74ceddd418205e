package hf

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/model"
	"github.com/berth-scheduler/berth/model/graph"
)

// shape is one model of the catalogue: its architecture as its authors published
// it. The first name is the one that Names returns.
type shape struct {
	names  string // separated by '|'
	typ    string
	hidden int64
	layers int64
	heads  int64
	kv     int64 // 0 for as many as heads
	ffn    int64 // 0 for 4 times hidden
	vocab  int64
	pos    int64
	dtype  model.Precision
	more   func(*Config)
}

func (s *shape) config() Config {
	c := Config{
		Type: s.typ, Catalogue: true, Hidden: s.hidden, Layers: s.layers, Heads: s.heads, KVHeads: s.kv, FFN: s.ffn,
		Vocab: s.vocab, Positions: s.pos, Precision: s.dtype,
	}
	c.Name, _, _ = strings.Cut(s.names, "|")
	c.family()
	if s.ffn == 0 {
		c.FFN = 4 * s.hidden
	}
	switch s.typ {
	case "gpt2", "gptj", "phi", "gpt_neo":
		c.Activation = "gelu_new"
	case "opt", "t5", "switch_transformers":
		c.Activation = "relu"
	case "gemma", "gemma2", "gemma3_text":
		c.Activation = "gelu_pytorch_tanh"
	}
	if s.more != nil {
		s.more(&c)
	}
	c.complete()
	return c
}

// Names returns the models that Lookup knows, sorted; each has further spellings.
func Names() []string {
	all := catalogue()
	out := make([]string, len(all))
	for i := range all {
		out[i], _, _ = strings.Cut(all[i].names, "|")
	}
	slices.Sort(out)
	return out
}

// Lookup finds a well-known language model or transformer by name, such as
// "meta-llama/Llama-2-7b-chat-hf", "Llama 2 7 B" or "stablelm-base-alpha-3b".
// Organization, case, punctuation, word order and words that do not change the
// shape ("chat", "instruct", "hf", versions) do not matter. The shape is the
// published one. An unknown name gives an error that lists similar ones.
func Lookup(name string) (Config, error) {
	all := catalogue()
	for _, drop := range []bool{false, true} {
		want := key(name, drop)
		if want == "" {
			continue
		}
		for i := range all {
			for n := range strings.SplitSeq(all[i].names, "|") {
				if key(n, drop) == want {
					return all[i].config(), nil
				}
			}
		}
	}
	near := ""
	if names := Near(name); len(names) > 0 {
		near = "; near names are " + strings.Join(names, ", ")
	}
	return Config{}, fmt.Errorf("model %q: is not in the catalogue%s; or give its config.json", clip(name, model.MaxModelName), near)
}

// maxName bounds the names that key examines.
const maxName = 128

// key returns a name's words in sorted order; drop omits those that do not change
// the shape.
func key(name string, drop bool) string {
	name = strings.ToLower(name[strings.LastIndexByte(strings.TrimRight(name, "/"), '/')+1:])
	ws := words(clip(strings.TrimPrefix(name, "h2o-"), maxName))
	if drop {
		ws = slices.DeleteFunc(ws, idle)
	}
	slices.Sort(ws)
	return strings.Join(ws, " ")
}

// words splits a name at punctuation and before digits. A dot between digits
// belongs to the number, a unit to the number before it.
func words(name string) []string {
	var out []string
	start := 0
	flush := func(end int) {
		if end > start {
			out = append(out, name[start:end])
		}
	}
	digit := func(i int) bool { return i >= 0 && i < len(name) && name[i] >= '0' && name[i] <= '9' }
	letter := func(i int) bool { return i >= 0 && i < len(name) && name[i] >= 'a' && name[i] <= 'z' }
	for i := range len(name) {
		switch {
		case digit(i):
			version := i == start+1 && name[start] == 'v'
			if letter(i-1) && !version {
				flush(i)
				start = i
			}
		case name[i] == '.' && digit(i-1) && digit(i+1), letter(i):
		default:
			flush(i)
			start = i + 1
		}
	}
	flush(len(name))
	for i := len(out) - 1; i > 0; i-- { // "7 b" is "7b"
		if w := out[i]; (w == "b" || w == "m") && strings.Trim(out[i-1], "0123456789.") == "" {
			out[i-1] += w
			out = slices.Delete(out, i, i+1)
		}
	}
	return out
}

// idle reports whether a word of a name says nothing about the shape.
func idle(w string) bool {
	switch w {
	case "hf", "chat", "instruct", "instruction", "it", "base", "tuned", "deduped", "step", "intermediate", "gptq", "awq", "4bit", "8bit",
		"model", "sft", "dpo", "preview", "meta", "google", "lmsys", "openlm", "research", "databricks", "tiiuae", "stabilityai", "h2oai",
		"microsoft", "eleutherai", "facebook", "togethercomputer", "mistralai", "huggyllama", "pt", "en", "16k", "32k", "128k", "4k", "8k", "1431k", "3t", "bnb":
		return true
	}
	return len(w) > 1 && w[0] == 'v' && strings.Trim(w[1:], "0123456789.") == ""
}

// Near returns at most five names that share most with name, best first; none if no
// word of it occurs in the catalogue.
func Near(name string) []string {
	want := strings.Fields(key(name, true))
	names := Names()
	scores := make(map[string]int, len(names))
	for _, n := range names {
		have, same := strings.Fields(key(n, true)), 0
		for _, w := range want {
			switch {
			case slices.Contains(have, w):
				same += 4
			case len(w) > 2 && slices.ContainsFunc(have, func(h string) bool { return len(h) > 2 && (strings.HasPrefix(h, w) || strings.HasPrefix(w, h)) }):
				same += 2
			}
		}
		if same > 0 {
			scores[n] = 8*same - max(len(have)-len(want), len(want)-len(have))
		}
	}
	names = slices.DeleteFunc(names, func(n string) bool { _, ok := scores[n]; return !ok })
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(scores[b], scores[a]) })
	return names[:min(5, len(names))]
}

const (
	half  = graph.FP16
	brain = graph.BF16
)
