package main

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Most bugs change only function bodies. These are all written into one copy of the tree, each
// as a separate function next to the right one, and an environment variable selects which of
// them is called ("mutant schemata": Untch, Offutt and Harrold, "Mutation Analysis Using Mutant
// Schemata", ISSTA 1993). So a package's tests are compiled once, not once per bug.

// switchVar names the variable with the number of the active bug; 0 means none.
const switchVar = "PLANTED_BUG"

// function is a function of the tree with the bugs that change it.
type function struct {
	decl   *ast.FuncDecl
	src    string         // of its file
	bodies map[int]string // by number of the bug
}

// switched is a tree that contains many bugs at once.
type switched struct {
	dir   string
	files map[string]map[string]*function // by file and name
	bins  map[string]string               // compiled tests, by package
}

func newSwitched(dir string) *switched {
	return &switched{dir: dir, files: map[string]map[string]*function{}, bins: map[string]string{}}
}

// add records m as number n, and reports whether that was possible: it is not if m changes
// anything but function bodies. It leaves the tree unchanged.
func (s *switched) add(ctx context.Context, m mutant, n int) (bool, error) {
	before := map[string]string{}
	for line := range strings.Lines(m.patch) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "--- a/"); ok {
			data, err := os.ReadFile(filepath.Join(s.dir, name))
			if err != nil {
				return false, err
			}
			before[name] = string(data)
		}
	}
	if err := apply(ctx, s.dir, m); err != nil {
		return false, err
	}
	var errs []error
	found := map[string]map[string]*function{}
	can := true
	for name, old := range before {
		data, err := os.ReadFile(filepath.Join(s.dir, name))
		errs = append(errs, err, os.WriteFile(filepath.Join(s.dir, name), []byte(old), 0o644))
		fs, ok := differ(old, string(data))
		found[name], can = fs, can && ok
	}
	if err := errors.Join(errs...); err != nil || !can {
		return false, err
	}
	for name, fs := range found {
		if s.files[name] == nil {
			s.files[name] = map[string]*function{}
		}
		for key, f := range fs {
			if s.files[name][key] == nil {
				s.files[name][key] = f
				f.bodies[n] = f.bodies[0]
				delete(f.bodies, 0)
				continue
			}
			s.files[name][key].bodies[n] = f.bodies[0]
		}
	}
	return true, nil
}

// differ returns the functions whose bodies differ, with the new body as number 0, and whether
// nothing else does.
func differ(old, now string) (map[string]*function, bool) {
	was, wasRest, err1 := bodies(old)
	is, isRest, err2 := bodies(now)
	if err1 != nil || err2 != nil || wasRest != isRest {
		return nil, false
	}
	found := map[string]*function{}
	for key, d := range was {
		after, ok := is[key]
		if !ok {
			return nil, false
		}
		body := text(now, after.Body)
		if body == text(old, d.Body) {
			continue
		}
		if d.Type.TypeParams != nil || d.Name.Name == "init" {
			return nil, false
		}
		found[key] = &function{decl: d, src: old, bodies: map[int]string{0: body}}
	}
	return found, len(found) > 0
}

// bodies returns the functions of a file by receiver and name, and the rest of the file without
// their bodies.
func bodies(src string) (map[string]*ast.FuncDecl, string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), "", src, parser.SkipObjectResolution)
	if err != nil {
		return nil, "", err
	}
	found := map[string]*ast.FuncDecl{}
	var rest strings.Builder
	at := token.Pos(1)
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		key := f.Name.Name
		if f.Recv != nil {
			key = text(src, f.Recv.List[0].Type) + "." + key
		}
		found[key] = f
		rest.WriteString(src[at-1 : f.Body.Pos()-1])
		at = f.Body.End()
	}
	rest.WriteString(src[at-1:])
	return found, rest.String(), nil
}

// text returns the source of n in src: positions in a file that is parsed alone begin at 1.
func text(src string, n ast.Node) string { return src[n.Pos()-1 : n.End()-1] }

// write writes what was added into the tree.
func (s *switched) write() error {
	dirs := map[string]string{} // package names by directory
	for name, fs := range s.files {
		path := filepath.Join(s.dir, name)
		src := ""
		for _, f := range fs {
			src = f.src
		}
		file, err := parser.ParseFile(token.NewFileSet(), "", src, parser.PackageClauseOnly)
		if err != nil {
			return err
		}
		dirs[filepath.Dir(path)] = file.Name.Name
		var more strings.Builder
		// Backwards, so that earlier positions stay valid.
		last := func(a, b *function) int { return int(b.decl.Name.Pos() - a.decl.Name.Pos()) }
		for _, f := range slices.SortedFunc(maps.Values(fs), last) {
			end := f.decl.Name.End() - 1
			src = src[:end] + "_right" + src[end:]
			more.WriteString(f.wrapper())
		}
		if err := os.WriteFile(path, []byte(src+more.String()), 0o644); err != nil {
			return err
		}
	}
	for dir, pkg := range dirs {
		src := fmt.Sprintf("package %s\n\nimport (\n\t\"os\"\n\t\"strconv\"\n)\n\nvar plantedBug, _ = strconv.Atoi(os.Getenv(%q))\n", pkg, switchVar)
		if err := os.WriteFile(filepath.Join(dir, "plantedbug.go"), []byte(src), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// wrapper returns the bugs' functions, and the one that calls one of them or the right one.
func (f *function) wrapper() string {
	var b, params, args, recv strings.Builder
	name := f.decl.Name.Name
	call := name
	if f.decl.Recv != nil {
		fmt.Fprintf(&recv, "(r0 %s) ", text(f.src, f.decl.Recv.List[0].Type))
		call = "r0." + name
	}
	i := 0
	for _, p := range f.decl.Type.Params.List {
		for range max(1, len(p.Names)) {
			fmt.Fprintf(&params, "p%d %s, ", i, text(f.src, p.Type))
			fmt.Fprintf(&args, "p%d", i)
			if _, many := p.Type.(*ast.Ellipsis); many {
				args.WriteString("...")
			}
			args.WriteString(", ")
			i++
		}
	}
	var results []string
	ret := ""
	if rs := f.decl.Type.Results; rs != nil {
		ret = "return "
		for _, r := range rs.List {
			for range max(1, len(r.Names)) {
				results = append(results, text(f.src, r.Type))
			}
		}
	}
	as := strings.TrimSuffix(args.String(), ", ")
	fmt.Fprintf(&b, "\n\nfunc %s%s(%s) (%s) {\n\tswitch plantedBug {\n", recv.String(), name, strings.TrimSuffix(params.String(), ", "), strings.Join(results, ", "))
	for _, n := range slices.Sorted(maps.Keys(f.bodies)) {
		fmt.Fprintf(&b, "\tcase %d:\n\t\t%s%s_bug%d(%s)\n", n, ret, call, n, as)
	}
	fmt.Fprintf(&b, "\tdefault:\n\t\t%s%s_right(%s)\n\t}\n", ret, call, as)
	if ret != "" {
		b.WriteString("\tpanic(\"unreachable\")\n")
	}
	b.WriteString("}\n")
	head := f.src[f.decl.Type.Func-1 : f.decl.Body.Pos()-1]
	at := f.decl.Name.End() - f.decl.Type.Func
	for _, n := range slices.Sorted(maps.Keys(f.bodies)) {
		fmt.Fprintf(&b, "\n%s_bug%d%s%s\n", head[:at], n, head[at:], f.bodies[n])
	}
	return b.String()
}

// together tries in one copy all bugs that can be combined, passes each verdict to say, also
// of those that do not compile, and returns the others.
func together(ctx context.Context, o options, ms []mutant, say func(mutant, verdict)) (rest []mutant, err error) {
	cerr := inCopy(ctx, func(dir string) {
		if ms, err = compiling(ctx, dir, ms, say); err != nil {
			return
		}
		s := newSwitched(dir)
		in := make([]bool, len(ms)) // number n is ms[n-1]
		for i, m := range ms {
			if in[i], err = s.add(ctx, m, i+1); err != nil {
				return
			}
		}
		if err = s.build(ctx, ms, in); err != nil {
			return
		}
		work := make(chan int)
		var wg sync.WaitGroup
		for range o.workers {
			wg.Go(func() {
				for i := range work {
					say(ms[i], s.try(ctx, ms[i], i+1, o))
				}
			})
		}
		for i := range ms {
			switch {
			case !in[i]:
				rest = append(rest, ms[i])
			case ctx.Err() == nil:
				work <- i
			}
		}
		close(work)
		wg.Wait()
	})
	return rest, errors.Join(err, cerr)
}

// build writes and compiles what was added, except bugs that do not compile: tried separately,
// they report that themselves.
func (s *switched) build(ctx context.Context, ms []mutant, in []bool) error {
	for {
		if err := s.write(); err != nil {
			return err
		}
		var those []mutant
		for i, m := range ms {
			if in[i] {
				those = append(those, m)
			}
		}
		out, err := s.compile(ctx, those)
		if err == nil || ctx.Err() != nil {
			return err
		}
		bad := s.faulty(out)
		if len(bad) == 0 {
			return err
		}
		for _, n := range bad {
			in[n-1] = false
			for _, fs := range s.files {
				for _, f := range fs {
					delete(f.bodies, n)
				}
			}
		}
	}
}

var errorLine = regexp.MustCompile(`(?m)^(\S+\.go):(\d+):\d+: `)

// faulty returns the numbers of the bugs that a compiler's output mentions.
func (s *switched) faulty(out string) []int {
	var bad []int
	for _, at := range errorLine.FindAllStringSubmatch(out, -1) {
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, filepath.Join(s.dir, at[1]), nil, parser.SkipObjectResolution)
		if err != nil {
			continue
		}
		line, _ := strconv.Atoi(at[2])
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || line < set.Position(f.Pos()).Line || line > set.Position(f.End()).Line {
				continue
			}
			_, after, _ := strings.Cut(f.Name.Name, "_bug")
			if n, err := strconv.Atoi(after); err == nil && !slices.Contains(bad, n) {
				bad = append(bad, n)
			}
		}
	}
	return bad
}

// compile builds the tests of every package required, and returns the output if one does not
// compile.
func (s *switched) compile(ctx context.Context, ms []mutant) (string, error) {
	for _, m := range ms {
		for _, pkg := range m.tests {
			if s.bins[pkg] != "" {
				continue
			}
			bin := filepath.Join(s.dir, fmt.Sprintf("planted%d.test", len(s.bins)))
			cmd := exec.CommandContext(ctx, "go", "test", "-trimpath", "-ldflags=-w", "-vet=off", "-c", "-o", bin, pkg)
			cmd.Dir = s.dir
			if out, err := cmd.CombinedOutput(); err != nil {
				return string(out), fmt.Errorf("compile the tests of %s with all bugs in them: %w\n%s", pkg, err, out)
			}
			s.bins[pkg] = bin
		}
	}
	return "", nil
}

// try runs the tests of m, which is number n; the test that caught it the last time runs first,
// and alone.
func (s *switched) try(ctx context.Context, m mutant, n int, o options) (v verdict) {
	began := time.Now()
	defer func() { v.took = time.Since(began) }()
	if last := m.last; last.test != "" && !o.all {
		v.err = s.run(ctx, &v, n, last, o)
	}
	for _, pkg := range m.tests {
		if v.err != nil || v.caught() && !o.all {
			break
		}
		v.err = s.run(ctx, &v, n, catcher{pkg: pkg}, o)
	}
	return v
}

// run runs the tests of a package, or one of them, with bug n active.
func (s *switched) run(ctx context.Context, v *verdict, n int, c catcher, o options) error {
	args := []string{"-test.timeout", o.timeout.String()}
	if !o.all {
		args = append(args, "-test.failfast")
	}
	if c.test != "" {
		args = append(args, "-test.run", "^"+c.test+"$")
	}
	if draws(filepath.Join(s.dir, c.pkg)) {
		args = append(args, "-rapid.shrinktime=1ms", "-rapid.nofailfile")
	}
	cmd := exec.CommandContext(ctx, s.bins[c.pkg], args...)
	cmd.Dir = filepath.Join(s.dir, c.pkg)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", switchVar, n))
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		for _, name := range failures(string(out)) {
			v.failed = append(v.failed, catcher{c.pkg, name})
		}
	}
	return nil
}
