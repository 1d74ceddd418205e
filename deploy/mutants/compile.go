package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// compiler type-checks packages of a tree, against the export data compiled by the go command.
type compiler struct {
	dir     string
	fset    *token.FileSet
	imports types.Importer
	listed  map[string]listed // by directory
}

// listed is what the go command reports about a package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

// newCompiler returns a compiler for the packages in dir that the bugs change.
func newCompiler(ctx context.Context, dir string, ms []mutant) (*compiler, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-trimpath", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles")
	for _, m := range ms {
		for _, f := range m.folders() {
			if _, err := os.Stat(filepath.Join(dir, f)); err == nil && !slices.Contains(cmd.Args, "./"+f) {
				cmd.Args = append(cmd.Args, "./"+f)
			}
		}
	}
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list packages: %w", err)
	}
	c := &compiler{dir: dir, fset: token.NewFileSet(), listed: map[string]listed{}}
	exports := map[string]string{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		exports[p.ImportPath] = p.Export
		c.listed[p.Dir] = p
	}
	c.imports = importer.ForCompiler(c.fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	return c, nil
}

// compiling returns the bugs that apply in dir and compile there, and passes the others to
// say. With the right function beside it, as in a switched tree, also one compiles that
// leaves an import unused.
func compiling(ctx context.Context, dir string, ms []mutant, say func(mutant, verdict)) (good []mutant, err error) {
	c, err := newCompiler(ctx, dir, ms)
	if err != nil {
		return nil, err
	}
	for _, m := range ms {
		switch err := c.compiles(ctx, m); {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			say(m, verdict{err: err})
		default:
			good = append(good, m)
		}
	}
	return good, nil
}

// compiles returns why a planted bug does not compile. It leaves the tree unchanged.
func (c *compiler) compiles(ctx context.Context, m mutant) (err error) {
	if err := apply(ctx, c.dir, m); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, apply(ctx, c.dir, m, "--reverse")) }()
	for _, folder := range m.folders() {
		if err := c.check(c.listed[filepath.Join(c.dir, folder)]); err != nil {
			return fmt.Errorf("%s does not compile: %w", m.id, err)
		}
	}
	return nil
}

func (c *compiler) check(p listed) error {
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(c.fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	_, err := (&types.Config{Importer: c.imports}).Check(p.ImportPath, c.fset, files, nil)
	return err
}
