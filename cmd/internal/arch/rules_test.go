package arch

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// rule looks at one file and returns a line for each breach.
type rule struct {
	name  string
	check func(*file) []string
}

var rules = []rule{
	{"imports of our own packages", ownImports},
	{"imports of other modules", foreignImports},
	{"deterministic packages", deterministic},
	{"output and environment belong to cmd", ambient},
	{"length of files and functions", lengths},
	{"comments on exported names", docs},
	{"names of folders and files", names},
	{"no init functions", noInit},
}

// mayImport is the table of who may import whom, by top-level folder; each
// folder may also import itself.
var mayImport = map[string][]string{
	"cluster":     {},
	"model":       {},
	"scheduler":   {"cluster"},
	"proto":       {"cluster"},
	"fsm":         {"cluster", "proto"},
	"coordinator": {"fsm", "scheduler", "model", "cluster", "proto"},
	"agent":       {"cluster", "proto"},
	"cmd":         {"cluster", "model", "scheduler", "proto", "fsm", "coordinator", "agent"},
	"deploy":      {},
	"e2e":         {"cluster", "model", "scheduler", "proto", "fsm", "coordinator", "agent"},
}

// special are packages with a wider or narrower row than their folder's.
var special = map[string][]string{
	// The simulator drives the real state machine with virtual time.
	"scheduler/sim": {"cluster", "scheduler", "fsm", "proto", "model"},
}

// rooms are packages that may import some packages of their own folder only; the
// row holds for what is below them, too.
var rooms = map[string][]string{
	// What stands on the words of jobs and nodes: charges and quotas, then what a pass works
	// from and gives. The words know of neither.
	"cluster/accounting": {"cluster"},
	"cluster/dispatch":   {"cluster", "cluster/accounting"},
	"cluster/ladder":     {"cluster"},
	"cluster/outputpath": {"cluster"},
	"cluster/sharing":    {"cluster"},
	"cluster/hostnames":  {},
	"cluster/series":     {},
	"cluster/study":      {},
	"cluster/wait":       {},
	// Planning a site is laid over passes: the coordinator and the simulator run
	// the same functions, so it may know of neither.
	"scheduler/site": {"scheduler", "scheduler/elastic", "scheduler/policies", "scheduler/cells", "scheduler/rules", "scheduler/deadline"},
	// What passes stand on is laid over each other in this order, and knows of no pass.
	"scheduler/say":      {},
	"scheduler/fair":     {},
	"scheduler/rules":    {"scheduler/say"},
	"scheduler/company":  {"scheduler/rules", "scheduler/say"},
	"scheduler/fragment": {"scheduler/rules"},
	"scheduler/elastic":  {"scheduler/rules"},
	"scheduler/deadline": {"scheduler/elastic", "scheduler/rules", "scheduler/say"},
	"scheduler/fleet":    {"scheduler/fragment", "scheduler/rules", "scheduler/say"},
	"scheduler/explain":  {"scheduler/company", "scheduler/rules", "scheduler/say"},
	// What the policies' pass stands on, likewise: the mirror of nodes and runs, what a
	// pass looks at, who comes when, and where he goes.
	"scheduler/policies/mirror": {"scheduler/rules"},
	"scheduler/policies/scene":  {"scheduler/company", "scheduler/policies/mirror", "scheduler/rules"},
	"scheduler/policies/order":  {"scheduler/policies/mirror", "scheduler/policies/scene", "scheduler/rules"},
	"scheduler/policies/place": {
		"scheduler/company", "scheduler/fleet", "scheduler/fragment", "scheduler/policies/mirror", "scheduler/policies/order", "scheduler/policies/scene", "scheduler/rules",
	},
	// So do both with what running jobs hold.
	"scheduler/resize": {},
	"scheduler/power":  {},
	// What is true of a simulation, how jobs slow each other down, and what no schedule can
	// beat: they know of no run, as readers of traces do not.
	"scheduler/sim/workload": {},
	"scheduler/sim/slowdown": {"scheduler/policies/place", "scheduler/sim/workload"},
	"scheduler/sim/optimum":  {"scheduler/sim/slowdown", "scheduler/sim/workload"},
	"scheduler/sim/trace":    {"scheduler", "scheduler/sim/slowdown", "scheduler/sim/workload"},
	// The rooms of a coordinator are laid over each other in this order; the coordinator
	// puts them together, and none of them knows it.
	"coordinator/office":    {"coordinator/proposer", "coordinator/raftnode"},
	"coordinator/nodes":     {"coordinator/limit", "coordinator/office", "coordinator/proposer", "coordinator/roles"},
	"coordinator/lead":      {"coordinator/figures", "coordinator/idle", "coordinator/learner", "coordinator/nodes", "coordinator/notify", "coordinator/proposer"},
	"coordinator/endpoints": {"coordinator/nodes"},
	"coordinator/archive":   {"coordinator/history", "coordinator/limit", "coordinator/peers", "coordinator/raftnode"},
	"coordinator/current":   {"coordinator/office", "coordinator/peers"},
	"coordinator/members":   {"coordinator/archive", "coordinator/learner", "coordinator/office", "coordinator/peers", "coordinator/raftnode", "coordinator/roles", "coordinator/space"},
	"coordinator/api": {
		"coordinator/archive", "coordinator/backup", "coordinator/current", "coordinator/figures", "coordinator/history", "coordinator/lead", "coordinator/learner",
		"coordinator/limit", "coordinator/members", "coordinator/nodes", "coordinator/notify", "coordinator/office", "coordinator/peers", "coordinator/proposer",
		"coordinator/raftnode", "coordinator/roles", "coordinator/space",
	},
	// The page calls the users' API as users do, and knows none of its rooms.
	"coordinator/web": {"coordinator/api/authorize"},
	// A runtime is driven by the agent and knows nothing of it: what both speak of
	// is the interface and what it hands over.
	"agent/runtime": {"agent/launch", "agent/proc"},
	// What it decides, it decides from values alone.
	"agent/attempt":      {"agent/runtime", "agent/launch", "agent/hold", "agent/gpu/caps", "agent/gpu/health"},
	"agent/launcher":     {"agent/launch", "agent/hold", "agent/ranks", "agent/gpu/caps"},
	"agent/cards":        {"agent/launch", "agent/gpu", "agent/gpu/caps"},
	"agent/hooks":        {"agent/cgroup"},
	"agent/processrt":    {"agent/runtime", "agent/launch", "agent/asuser", "agent/cgroup", "agent/proc", "agent/pty"},
	"agent/containerdrt": {"agent/runtime", "agent/launch", "agent/asuser", "agent/cgroup", "agent/proc", "agent/gpu/cdi", "agent/holes", "agent/jobside"},
	// The state machine is composed of machines that know of nothing above them: those
	// of jobs stand on those that jobs are of, which do not know of each other.
	"fsm/command":     {},
	"fsm/table":       {},
	"fsm/intern":      {},
	"fsm/accounts":    {"fsm/command", "fsm/table"},
	"fsm/blobs":       {"fsm/command", "fsm/table"},
	"fsm/credentials": {"fsm/command", "fsm/table"},
	"fsm/jobs":        {"fsm/accounts", "fsm/blobs", "fsm/command", "fsm/intern", "fsm/nodes", "fsm/notices", "fsm/table"},
	"fsm/learned":     {"fsm/command", "fsm/intern", "fsm/table"},
	"fsm/nodes":       {"fsm/command", "fsm/table"},
	"fsm/notices":     {"fsm/command", "fsm/table"},
	"fsm/attempts":    {"fsm/accounts", "fsm/command", "fsm/intern", "fsm/jobs", "fsm/learned", "fsm/nodes", "fsm/notices"},
	"fsm/orders":      {"fsm/command", "fsm/jobs", "fsm/table"},
	"fsm/site":        {"fsm/attempts", "fsm/command", "fsm/credentials", "fsm/jobs", "fsm/nodes"},
}

func ownImports(f *file) []string {
	top, _, _ := strings.Cut(f.dir(), "/")
	allowed, ok := mayImport[top]
	if !ok {
		return []string{f.at(f.ast.Package, "folder %s is not in the table of who may import whom", top)}
	}
	for dir, row := range special {
		if under(f.dir(), dir) {
			allowed = row
		}
	}
	if f.test() {
		// Tests may build fixtures from the vocabulary's neighbours, and run what
		// stands in deploy.
		allowed = append(slices.Clone(allowed), "cluster", "proto", "deploy")
	}
	var bad []string
	for _, spec := range f.ast.Imports {
		rest, ours := strings.CutPrefix(importPath(spec), module+"/")
		if !ours {
			continue
		}
		to, _, _ := strings.Cut(rest, "/")
		outside := to != top && !slices.Contains(allowed, to)
		for dir, row := range rooms {
			outside = outside || to == top && !f.test() && under(f.dir(), dir) && !under(rest, dir) && !slices.Contains(row, rest)
		}
		if outside {
			bad = append(bad, f.at(spec.Pos(), "%s may not import %s", f.dir(), rest))
		}
	}
	return bad
}

// fences says where a module may be used at all: in these folders or files.
var fences = []struct {
	module string
	where  []string
}{
	// The daemon names raft.ServerAddress to make the TLS stream layer.
	{"github.com/hashicorp/raft", []string{"fsm", "coordinator", "scheduler/sim", "cmd/internal/daemon"}},
	{"github.com/hashicorp/raft-boltdb", []string{"coordinator"}},
	{"github.com/hashicorp/memberlist", []string{"coordinator/nodes/members.go", "agent/members", "proto/gossip/roster"}},
	{"github.com/containerd/containerd", []string{"agent/containerdrt"}},
	{"github.com/opencontainers/runtime-spec", []string{"agent/containerdrt"}},
	// It edits OCI specs; the toolkit's own format is read with its own reader.
	{"tags.cncf.io/container-device-interface", []string{"agent/gpu/cdi"}},
	{"github.com/NVIDIA/go-nvml", []string{"agent/gpu"}},
	{"github.com/spf13/cobra", []string{"cmd"}},
	{"charm.land/bubbletea", []string{"cmd/internal/top"}},
	{"go.yaml.in/yaml", []string{"cmd"}},
	{"gonum.org/v1/plot", []string{"scheduler/sim/plot"}},
	{"google.golang.org/grpc", []string{"proto", "coordinator", "agent", "cmd", "e2e"}},
	// Never, each for what the standard library or a page of ours does.
	{"github.com/stretchr/testify", nil},
	{"github.com/spf13/viper", nil},
	{"github.com/pkg/errors", nil},
	{"github.com/sirupsen/logrus", nil},
	{"go.uber.org/zap", nil},
	{"k8s.io", nil},
}

// foreignImports leaves tests alone, which may bring the other side along,
// but for what is never used.
func foreignImports(f *file) []string {
	var bad []string
	for _, spec := range f.ast.Imports {
		p := importPath(spec)
		for _, fence := range fences {
			if !under(p, fence.module) || f.test() && fence.where != nil {
				continue
			}
			inside := func(where string) bool { return f.path == where || under(f.dir(), where) }
			if !slices.ContainsFunc(fence.where, inside) {
				bad = append(bad, f.at(spec.Pos(), "%s may be imported only in %q", p, fence.where))
			}
		}
	}
	return bad
}

// pure are the packages that must give equal answers to equal input.
var pure = []string{
	"cluster", "cluster/accounting", "cluster/dispatch", "cluster/hostnames", "cluster/ladder", "cluster/outputpath", "cluster/series", "cluster/sharing", "cluster/study", "scheduler", "scheduler/company", "scheduler/deadline", "scheduler/explain", "scheduler/fair", "scheduler/fleet", "scheduler/fragment", "scheduler/policies",
	"scheduler/policies/mirror", "scheduler/policies/order", "scheduler/policies/place", "scheduler/policies/scene",
	"scheduler/power", "scheduler/resize", "scheduler/rules", "scheduler/say", "scheduler/site", "agent/attempt", "fsm",
	"fsm/accounts", "fsm/attempts", "fsm/blobs", "fsm/command", "fsm/credentials", "fsm/intern", "fsm/jobs", "fsm/learned", "fsm/nodes", "fsm/notices",
	"fsm/orders", "fsm/site", "fsm/table",
}

var clockFuncs = []string{"Now", "Since", "Until", "After", "AfterFunc", "Sleep", "Tick", "NewTimer", "NewTicker"}

// deterministic forbids clocks, chance, goroutines and I/O in the pure
// packages. Sub-packages such as the simulator are programs around them.
func deterministic(f *file) []string {
	if !slices.Contains(pure, f.dir()) || f.test() {
		return nil
	}
	var bad []string
	for _, spec := range f.ast.Imports {
		switch p := importPath(spec); {
		case strings.HasPrefix(p, "math/rand"), p == "crypto/rand", p == "os", p == "net", strings.HasPrefix(p, "net/"), p == "log", p == "syscall":
			bad = append(bad, f.at(spec.Pos(), "%s must not import %s: its answers depend on its arguments alone", f.dir(), p))
		}
	}
	imports := f.imports()
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			bad = append(bad, f.at(n.Pos(), "%s must not start goroutines", f.dir()))
		case *ast.SelectorExpr:
			if pkg, name := qualified(n, imports); pkg == "time" && slices.Contains(clockFuncs, name) {
				bad = append(bad, f.at(n.Pos(), "%s must not read the clock (time.%s)", f.dir(), name))
			}
		}
		return true
	})
	return bad
}

// processes are files whose code is all of a process of its own: the keeper,
// and the helper that becomes a job. They begin where cmd ends, or instead.
var processes = []string{"agent/processrt/keeper.go", "agent/jobside/jobside.go", "agent/ranks/ranks.go", "agent/hold/hold.go", "agent/step/step.go", "agent/tunnel/tunnel.go"}

// commands is where what a command sees of its machine comes from Env, which
// tests fill in: theirs has other users, another name and another environment.
const commands = "cmd/internal/cli"

// ambient keeps standard streams, the environment and the global logger out
// of the packages that are passed what they need, and the machine's accounts out
// of the commands.
func ambient(f *file) []string {
	if under(f.dir(), commands) && f.dir() != commands+"/console" && !f.test() {
		return uses(f, map[string][]string{"os/user": {"Lookup", "LookupId", "LookupGroup", "LookupGroupId", "Current"}}, "is for console.Env; use its Accounts")
	}
	if under(f.dir(), "cmd") || under(f.dir(), "e2e") || f.test() || f.program() || slices.Contains(processes, f.path) || under(f.dir(), "agent/runtimetest") || under(f.dir(), "agent/gpu/nvml/nvmltest") {
		return nil
	}
	forbidden := map[string][]string{
		"fmt":      {"Print", "Printf", "Println"},
		"os":       {"Stdout", "Stderr", "Stdin", "Getenv", "LookupEnv", "Environ", "Exit", "Args"},
		"log/slog": {"Default", "SetDefault", "Debug", "Info", "Warn", "Error"},
		"flag":     {"Parse", "String", "Int", "Bool", "Duration"},
	}
	return uses(f, forbidden, "is for cmd; take what you need as an argument")
}

// uses objects to what of some packages a file names.
func uses(f *file, forbidden map[string][]string, why string) []string {
	imports := f.imports()
	var bad []string
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if pkg, name := qualified(sel, imports); slices.Contains(forbidden[pkg], name) {
				bad = append(bad, f.at(n.Pos(), "%s.%s %s", pkg, name, why))
			}
		}
		return true
	})
	return bad
}

// qualified resolves pkg.Name; it returns "" for other selectors.
func qualified(sel *ast.SelectorExpr, imports map[string]string) (pkg, name string) {
	if id, ok := sel.X.(*ast.Ident); ok {
		return imports[id.Name], sel.Sel.Name
	}
	return "", ""
}

const (
	maxFileLines   = 500
	maxFuncLines   = 60
	maxSwitchLines = 80 // a function that is one flat switch
)

func lengths(f *file) []string {
	if f.generated {
		return nil
	}
	var bad []string
	if f.lines > maxFileLines {
		bad = append(bad, f.at(f.ast.Package, "file of %d lines, at most %d; split it by subject", f.lines, maxFileLines))
	}
	if f.test() {
		return bad // tables may be long
	}
	for _, decl := range f.ast.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		limit := maxFuncLines
		if isFlatSwitch(fn.Body) {
			limit = maxSwitchLines
		}
		if n := f.fset.Position(fn.End()).Line - f.fset.Position(fn.Pos()).Line + 1; n > limit {
			bad = append(bad, f.at(fn.Pos(), "function %s of %d lines, at most %d", fn.Name.Name, n, limit))
		}
	}
	return bad
}

// isFlatSwitch reports whether a function is a switch with at most three
// statements around it.
func isFlatSwitch(body *ast.BlockStmt) bool {
	return len(body.List) <= 4 && slices.ContainsFunc(body.List, func(s ast.Stmt) bool {
		switch s.(type) {
		case *ast.SwitchStmt, *ast.TypeSwitchStmt:
			return true
		}
		return false
	})
}

// docs wants a comment on each exported name, beginning with the name where
// it stands alone.
func docs(f *file) []string {
	if f.generated || f.test() {
		return nil
	}
	var bad []string
	missing := func(pos token.Pos, what string) {
		bad = append(bad, f.at(pos, "exported %s has no comment", what))
	}
	for _, decl := range f.ast.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && exportedReceiver(d) && d.Doc.Text() == "" {
				missing(d.Pos(), d.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					if s.Name.IsExported() && d.Doc.Text() == "" && s.Doc.Text() == "" {
						missing(s.Pos(), s.Name.Name)
					}
				case *ast.ValueSpec:
					if s.Names[0].IsExported() && d.Doc.Text() == "" && s.Doc.Text() == "" && s.Comment.Text() == "" {
						missing(s.Pos(), s.Names[0].Name)
					}
				}
			}
		}
	}
	return bad
}

// exportedReceiver is true for functions, and for methods of exported types.
func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	t := d.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return false
		}
	}
}

func names(f *file) []string {
	var bad []string
	for _, part := range strings.Split(f.dir(), "/") {
		if slices.Contains([]string{"util", "utils", "common", "helper", "helpers", "misc", "base"}, part) {
			bad = append(bad, f.at(f.ast.Package, "folder %q says nothing about what is in it", part))
		}
	}
	stem := strings.TrimSuffix(strings.TrimSuffix(f.path, ".go"), "_test")
	if last := stem[len(stem)-1]; !f.generated && last >= '2' && last <= '9' && len(stem) > 1 && stem[len(stem)-2] >= 'a' && stem[len(stem)-2] != 'v' && !versioned(stem) {
		bad = append(bad, f.at(f.ast.Package, "split files by subject, not by number"))
	}
	return bad
}

// versioned lets names through whose number is part of the subject.
func versioned(stem string) bool {
	for _, s := range []string{"cgroup1", "cgroup2", "sha256", "crc32", "crc32c", "linux_amd64", "linux_arm64"} {
		if strings.HasSuffix(stem, s) {
			return true
		}
	}
	return false
}

func noInit(f *file) []string {
	if f.generated {
		return nil
	}
	var bad []string
	for _, decl := range f.ast.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
			bad = append(bad, f.at(fn.Pos(), "init hides behaviour in an import; use a constructor"))
		}
	}
	return bad
}
