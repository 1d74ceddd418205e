package importcmd

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/slurmconf"
)

// siteView is the JSON of an import.
type siteView struct {
	Cluster    string          `json:"cluster"`
	Nodes      []nodeView      `json:"nodes"`
	Partitions []partitionView `json:"partitions"`
	Keys       []keyView       `json:"keys"`
	Warnings   []string        `json:"warnings"`
	Commands   []string        `json:"commands"`
	Agents     []agentView     `json:"agents"`
	History    *historyView    `json:"history,omitempty"`
}

type nodeView struct {
	Names    string     `json:"names"`
	CPUs     int        `json:"cpus"`
	MemMiB   int64      `json:"memory_mib"`
	GPUs     []gpusView `json:"gpus"`
	Features []string   `json:"features"`
	State    string     `json:"state"`
}

type gpusView struct {
	Type  string `json:"type"`
	Count int    `json:"count"`
	File  string `json:"file"`
}

type partitionView struct {
	Name    string `json:"name"`
	Nodes   string `json:"nodes"`
	Default bool   `json:"default"`
	Down    bool   `json:"down"`
	// 0 means no limit.
	MaxSeconds     float64 `json:"max_seconds"`
	DefaultSeconds float64 `json:"default_seconds"`
}

type keyView struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Of      string `json:"of"`
	Key     string `json:"key"`
	Value   string `json:"value"`
	Outcome string `json:"outcome"`
	Note    string `json:"note"`
}

type agentView struct {
	Nodes    string            `json:"nodes"`
	GPUs     string            `json:"gpus"`
	Settings map[string]string `json:"settings"`
}

func viewSite(s *slurmconf.Site, steps []slurmconf.Step, h *historyView) *siteView {
	v := &siteView{
		Cluster: s.Cluster, Nodes: []nodeView{}, Partitions: []partitionView{}, Keys: []keyView{},
		Warnings: append([]string{}, s.Warnings...), Commands: []string{}, Agents: []agentView{}, History: h,
	}
	for _, n := range s.Nodes {
		x := nodeView{Names: n.Names, CPUs: n.CPUs, MemMiB: n.MemMiB, GPUs: []gpusView{}, Features: append([]string{}, n.Features...), State: n.State}
		for _, g := range n.GPUs {
			x.GPUs = append(x.GPUs, gpusView(g))
		}
		v.Nodes = append(v.Nodes, x)
	}
	for _, p := range s.Partitions {
		v.Partitions = append(v.Partitions, partitionView{p.Name, p.Nodes, p.Default, p.Down, p.MaxTime.Seconds(), p.DefaultTime.Seconds()})
	}
	for _, k := range s.Entries {
		v.Keys = append(v.Keys, keyView{k.File, k.Line, k.Of, k.Key, k.Value, k.Fate.String(), k.Note})
	}
	for _, st := range steps {
		v.Commands = append(v.Commands, st.String())
	}
	for _, a := range s.Agents(true) {
		x := agentView{Nodes: a.Nodes, GPUs: a.GPUs, Settings: map[string]string{}}
		for _, set := range a.Settings {
			x.Settings[set.Key] = set.Value
		}
		v.Agents = append(v.Agents, x)
	}
	return v
}

// printSite reports what was imported and what not, the commands, and the settings.
func printSite(e *console.Env, s *slurmconf.Site, steps []slurmconf.Step, o *slurmOptions) {
	count := map[slurmconf.Fate]int{}
	t := &console.Table{Cols: []console.Column{{Head: "WHERE"}, {Head: "OF", Shrink: true}, {Head: "KEY", Shrink: true}, {Head: "OUTCOME"}, {Head: "WHY", Shrink: true}}}
	for _, k := range s.Entries {
		count[k.Fate]++
		if k.Fate == slurmconf.Taken && !o.all {
			continue
		}
		of := cmp.Or(k.Of, "cluster")
		t.Add(k.Place.String(), of, keyText(k), k.Fate.String(), k.Note)
	}
	if len(t.Rows) > 0 {
		t.Print(e)
		e.Printf("\n")
	}
	for _, w := range s.Warnings {
		e.Warnf("%s", console.Escape(w))
	}
	if len(steps) > 0 {
		e.Printf("Commands:\n")
		for _, st := range steps {
			e.Printf("  %s\n", console.Escape(st.String()))
		}
	}
	if agents := s.Agents(false); len(agents) > 0 {
		e.Printf("\nFor agent.yaml:\n")
		for _, a := range agents {
			for line := range strings.Lines(a.YAML()) {
				e.Printf("  %s\n", console.Escape(strings.TrimRight(line, "\n")))
			}
		}
	}
	unread := ""
	if n := count[slurmconf.Unread]; n > 0 {
		unread = fmt.Sprintf(", %d could not be read", n)
	}
	hint := ""
	if !o.apply {
		hint = "; nothing was changed, --apply runs the commands"
	}
	e.Warnf("%s: %s taken, %d dropped%s%s", console.Escape(o.files.Conf), console.Plural(count[slurmconf.Taken], "key", "keys"), count[slurmconf.Dropped], unread, hint)
}

func keyText(k slurmconf.Entry) string {
	if k.Value == "" {
		return k.Key
	}
	const most = 48
	v := []rune(k.Value)
	if len(v) > most {
		v = append(v[:most-1], '…')
	}
	return k.Key + "=" + string(v)
}
