package cluster

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// Where restricts the nodes a job may run on, in addition to its partition. Values
// are immutable; nil is anywhere.
type Where struct {
	// Nodes lists nodes that the job must have, all of them: if they are as many as
	// it needs, it runs there and nowhere else. Exclude lists those that it must
	// not have.
	Nodes, Exclude HostList
	// Features are required of its nodes.
	Features Features
	// Whole means that no other job may be on its nodes, and that it takes all
	// cores of each; for memory see Spec.TakesAllMem.
	Whole bool
	// Reservation is the reservation in which it runs, "" for none.
	Reservation string
	// Switches limits how many switches its nodes may be on.
	Switches Switches
}

// WhereOf parses where a job may run; nil is anywhere. The error is an *Error of
// CodeInvalid that names the field.
func WhereOf(nodes, exclude, features string, whole bool, reservation, switches string) (*Where, error) {
	w := &Where{Whole: whole, Reservation: reservation}
	var err error
	if w.Switches, err = ParseSwitches(switches); err != nil {
		return nil, err
	}
	if nodes != "" {
		if w.Nodes, err = ParseHostList(nodes); err != nil {
			return nil, Errorf(CodeInvalid, "nodelist: %v", err)
		}
	}
	if exclude != "" {
		if w.Exclude, err = ParseHostList(exclude); err != nil {
			return nil, Errorf(CodeInvalid, "exclude: %v", err)
		}
	}
	if w.Features, err = ParseFeatures(features); err != nil {
		return nil, err
	}
	if nodes == "" && exclude == "" && features == "" && !whole && reservation == "" && switches == "" {
		return nil, nil
	}
	return w, nil
}

// Named reports whether the job must have certain nodes.
func (w *Where) Named() bool { return w != nil && w.Nodes.String() != "" }

// InReservation returns the name of the reservation that it asks for.
func (w *Where) InReservation() string {
	if w == nil {
		return ""
	}
	return w.Reservation
}

// Switches limits the network's lowest switches that a multi-node job may be spread
// over, and says how long it waits for such nodes before it takes any: Slurm's
// --switches. The zero value asks for nothing.
type Switches struct {
	Most int
	Wait time.Duration
}

// DefaultSwitchWait is how long a job waits if it does not say, like Slurm's
// max_switch_wait. MaxSwitchWait is the longest that it may ask for.
const (
	DefaultSwitchWait = 5 * time.Minute
	MaxSwitchWait     = 30 * 24 * time.Hour
)

// ParseSwitches parses a count, as 1, or a count and a wait, as 1@10m; "" asks for
// nothing. The error is an *Error of CodeInvalid.
func ParseSwitches(s string) (Switches, error) {
	if s == "" {
		return Switches{}, nil
	}
	count, wait, said := strings.Cut(s, "@")
	w := Switches{Wait: DefaultSwitchWait}
	n, err := strconv.ParseUint(count, 10, 16)
	if w.Most = int(n); err != nil || n < 1 || n > MaxNodes {
		return Switches{}, Errorf(CodeInvalid, "switches: %s is not a number from 1 to %d, alone or with how long to wait for it, such as 1@10m", QuoteShort(s), MaxNodes)
	}
	if said {
		if w.Wait, err = time.ParseDuration(wait); err != nil || w.Wait < 0 || w.Wait > MaxSwitchWait || w.Wait%time.Second != 0 {
			return Switches{}, Errorf(CodeInvalid, "switches: %s must wait 0s to %s, in whole seconds", QuoteShort(s), TimeText(MaxSwitchWait))
		}
	}
	return w, nil
}

// String returns the form that ParseSwitches parses.
func (s Switches) String() string {
	if s.Most == 0 {
		return ""
	}
	return strconv.Itoa(s.Most) + "@" + s.Wait.String()
}

// FewSwitches returns the most switches that the job's nodes may be on if it starts
// at now, and until when that holds; 0 is any.
func (j *Job) FewSwitches(now Time) (most int, until Time) {
	if w := j.Spec.Where; w != nil && w.Switches.Most > 0 && j.Spec.NodeCount() > 1 {
		if until = j.Eligible.Add(w.Switches.Wait); now < until {
			return w.Switches.Most, until
		}
	}
	return 0, 0
}

// WholeNodes reports whether the job wants its nodes for itself.
func (s *Spec) WholeNodes() bool { return s.Where != nil && s.Where.Whole }

// TakesAllMem reports whether the job takes all memory of its nodes: they are
// exclusive to it and it does not say how much it needs.
func (s *Spec) TakesAllMem() bool { return s.WholeNodes() && s.MemMiB == 0 }

// Allows reports whether a node, by its name and features alone, may be one of
// the job's.
func (s *Spec) Allows(n *Node) bool { return s.Refuses(n) == "" }

// Refuses returns why a node may not be one of the job's, "" if it may.
func (s *Spec) Refuses(n *Node) string {
	w := s.Where
	switch {
	case s.Node != "" && s.Node != n.ID:
		return "is not the node that is asked for, " + string(s.Node)
	case w == nil:
		return ""
	case w.Named() && w.Nodes.Len() >= s.NodeCount() && !w.Nodes.Holds(n.ID):
		return "is not among the nodes that are asked for, " + w.Nodes.String()
	case w.Exclude.String() != "" && w.Exclude.Holds(n.ID):
		return "is excluded by the job (" + w.Exclude.String() + ")"
	case !w.Features.Match(n.Features):
		return "has not the features " + w.Features.String()
	}
	return ""
}

// Restricted reports whether Refuses may refuse a node for a reason other than
// Spec.Node.
func (s *Spec) Restricted() bool {
	return s.Where != nil && (s.Where.Named() || s.Where.Exclude.String() != "" || s.Where.Features.String() != "")
}

// Bounds on the cost of a job's lists each time a node is looked up in them or
// their names are listed.
const (
	maxHostParts = 64
	maxHostAgain = 64
)

// Check reports whether a job on nodes nodes may ask for the reservation and the
// lists. The error is an *Error of CodeInvalid.
func (w *Where) Check(nodes int) error {
	switch {
	case w == nil:
		return nil
	case w.Nodes.String() == AllNodes:
		return Errorf(CodeInvalid, "nodelist: %s is not a list of nodes; name those that the job must have", AllNodes)
	case w.Exclude.String() == AllNodes:
		return Errorf(CodeInvalid, "exclude: %s leaves no node to run on", AllNodes)
	case w.Nodes.parts() > maxHostParts || w.Exclude.parts() > maxHostParts:
		return Errorf(CodeInvalid, "nodelist, exclude: more than %d parts with brackets; write ranges such as gpu[01-99]", maxHostParts)
	case w.Nodes.again() > maxHostAgain:
		return Errorf(CodeInvalid, "nodelist: %s names nodes more than once; name each once", QuoteShort(w.Nodes.String()))
	case w.Nodes.Len() > nodes:
		return Errorf(CodeInvalid, "nodelist: %s names %d nodes and the job has %d; it runs on all that are named, so ask for as many with --nodes, or name fewer", QuoteShort(w.Nodes.String()), w.Nodes.Len(), nodes)
	case w.Reservation != "":
		return CheckReservationName(w.Reservation)
	}
	if names := w.Nodes.Names(); w.Exclude.String() != "" {
		if i := slices.IndexFunc(names, w.Exclude.Holds); i >= 0 {
			return Errorf(CodeInvalid, "exclude: node %s is both requested and excluded", names[i])
		}
	}
	return nil
}

// Bounds of features.
const (
	MaxNodeFeatures = 64 // per node
	maxFeatureLen   = 63
	maxTerms        = 64 // per job request
)

// Features is the feature expression that a job asks for: one of several sets. The
// zero value asks for nothing.
type Features struct {
	text string
	any  [][]string
}

// ParseFeatures parses Slurm's --constraint: names joined by & (all of them) and |
// (one of them), where & binds tighter. Slurm's counts and brackets are refused.
// The error is an *Error of CodeInvalid.
func ParseFeatures(s string) (Features, error) {
	s = strings.TrimSpace(strings.ReplaceAll(s, ",", "&"))
	if s == "" {
		return Features{}, nil
	}
	switch i := strings.IndexAny(s, "*()[]"); {
	case i >= 0 && s[i] == '*':
		return Features{}, Errorf(CodeInvalid, "constraint %s: numbers of nodes with a feature are not supported; all nodes of a job match its constraint", QuoteShort(s))
	case i >= 0:
		return Features{}, Errorf(CodeInvalid, "constraint %s: brackets and parentheses are not supported; write sets of features joined by |, such as a100&nvlink|h100", QuoteShort(s))
	}
	f, terms := Features{}, 0
	var sets []string
	for set := range strings.SplitSeq(s, "|") {
		var all []string
		for name := range strings.SplitSeq(set, "&") {
			name = strings.TrimSpace(name)
			if err := CheckFeature(name); err != nil {
				return Features{}, Errorf(CodeInvalid, "constraint %s: %v", QuoteShort(s), err)
			}
			if terms++; terms > maxTerms {
				return Features{}, Errorf(CodeInvalid, "constraint: names more than %d features", maxTerms)
			}
			all = append(all, name)
		}
		f.any = append(f.any, all)
		sets = append(sets, strings.Join(all, "&"))
	}
	f.text = strings.Join(sets, "|")
	return f, nil
}

// CheckFeature reports whether s may name a feature: letters, digits, '_', '-',
// '.', ':', '=' and '+', as sites name them for Slurm.
func CheckFeature(s string) error {
	if s == "" || len(s) > maxFeatureLen {
		return Errorf(CodeInvalid, "feature %s: must have 1 to %d characters", QuoteShort(s), maxFeatureLen)
	}
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("_-.:=+", c) >= 0) {
			return Errorf(CodeInvalid, "feature %s: may hold letters, digits, '_', '-', '.', ':', '=' and '+'", QuoteShort(s))
		}
	}
	return nil
}

// String returns what was asked for, "" for nothing.
func (f Features) String() string { return f.text }

// Equal reports whether both have the same text.
func (f Features) Equal(o Features) bool { return f.text == o.text }

// Match reports whether a node with the features has satisfies f.
func (f Features) Match(has []string) bool {
	return f.text == "" || slices.ContainsFunc(f.any, func(all []string) bool {
		return !slices.ContainsFunc(all, func(name string) bool { return !slices.Contains(has, name) })
	})
}

// MaxData is how many data sets a job may name.
const MaxData = 8

// CheckDataName reports whether s may name a data set: as a feature of nodes, in
// letters, digits, '_', '-' and '.'.
func CheckDataName(s string) error {
	if err := CheckFeature(DataFeature + s); err != nil || s == "" || strings.Trim(s, ".-") != s || strings.ContainsAny(s, ":=+") {
		return Errorf(CodeInvalid, "data %s: must have 1 to %d letters, digits, '_', '-' and '.', and begin and end with neither '-' nor '.'", QuoteShort(s), maxFeatureLen-len(DataFeature))
	}
	return nil
}

// DataEnv returns the variable that tells a job where a data set is:
// BERTH_DATA_IMAGENET_1K for imagenet-1k.
func DataEnv(name string) string {
	return reservedEnv + "DATA_" + strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(name))
}

// checkData reports whether a job may name these data sets.
func checkData(names []string) error {
	if len(names) > MaxData {
		return Errorf(CodeInvalid, "data: %d data sets, at most %d are allowed", len(names), MaxData)
	}
	for i, name := range names {
		if err := CheckDataName(name); err != nil {
			return err
		}
		for _, other := range names[:i] {
			if DataEnv(other) == DataEnv(name) {
				return Errorf(CodeInvalid, "data: %s and %s would both be told as %s", QuoteShort(other), QuoteShort(name), DataEnv(name))
			}
		}
	}
	return nil
}

// And returns f with one more feature required in each of its sets.
func (f Features) And(name string) (Features, error) {
	if f.text == "" {
		return ParseFeatures(name)
	}
	return ParseFeatures(strings.ReplaceAll(f.text, "|", "&"+name+"|") + "&" + name)
}

// CheckFeatures reports whether a node may report these features: sorted, each
// once.
func CheckFeatures(has []string) error {
	if len(has) > MaxNodeFeatures {
		return Errorf(CodeInvalid, "features: %d of them, at most %d are allowed", len(has), MaxNodeFeatures)
	}
	for i, name := range has {
		if err := CheckFeature(name); err != nil {
			return err
		}
		if i > 0 && has[i-1] >= name {
			return Errorf(CodeInvalid, "features: %s is out of order, or named twice", QuoteShort(name))
		}
	}
	return nil
}
