package raftnode

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"
)

// raftErrors is every error that raft exports, with its meaning.
func raftErrors() map[string]struct {
	err  error
	want Outcome
} {
	type row = struct {
		err  error
		want Outcome
	}
	return map[string]row{
		"ErrNotLeader":                       {raft.ErrNotLeader, Refused},
		"ErrNotVoter":                        {raft.ErrNotVoter, Refused},
		"ErrLeader":                          {raft.ErrLeader, Refused},
		"ErrEnqueueTimeout":                  {raft.ErrEnqueueTimeout, Refused},
		"ErrLeadershipTransferInProgress":    {raft.ErrLeadershipTransferInProgress, Refused},
		"ErrCantBootstrap":                   {raft.ErrCantBootstrap, Refused},
		"ErrNothingNewToSnapshot":            {raft.ErrNothingNewToSnapshot, Refused},
		"ErrUnsupportedProtocol":             {raft.ErrUnsupportedProtocol, Refused},
		"ErrPipelineReplicationNotSupported": {raft.ErrPipelineReplicationNotSupported, Refused},
		"ErrLeadershipLost":                  {raft.ErrLeadershipLost, Unknown},
		"ErrAbortedByRestore":                {raft.ErrAbortedByRestore, Unknown},
		"ErrRaftShutdown":                    {raft.ErrRaftShutdown, Unknown},
		"ErrTransportShutdown":               {raft.ErrTransportShutdown, Unknown},
		"ErrPipelineShutdown":                {raft.ErrPipelineShutdown, Unknown},
		"ErrLogNotFound":                     {raft.ErrLogNotFound, Unknown},
	}
}

func TestClassify(t *testing.T) {
	t.Parallel()
	for name, r := range raftErrors() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := Classify(fmt.Errorf("propose: %w", r.err)); got != r.want {
				t.Errorf("%v, want %v", got, r.want)
			}
		})
	}
	for name, r := range map[string]struct {
		err  error
		want Outcome
	}{
		"no error":      {nil, Done},
		"closed":        {ErrClosed, Refused},
		"too large":     {ErrEntryTooLarge, Refused},
		"not proposed":  {fmt.Errorf("%w: %w", ErrNotProposed, context.Canceled), Refused},
		"context ended": {context.DeadlineExceeded, Unknown},
		"disk":          {errors.New("input/output error"), Unknown},
		"damage":        {&CorruptError{}, Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := Classify(r.err); got != r.want {
				t.Errorf("%v, want %v", got, r.want)
			}
		})
	}
}

// TestEveryRaftErrorIsClassified reads raft's source, so that an error of a
// later version is not overlooked.
func TestEveryRaftErrorIsClassified(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/hashicorp/raft").Output()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	dir := strings.TrimSpace(string(out))
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		src, err := parser.ParseFile(fset, filepath.Join(dir, f.Name()), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range src.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR {
				continue
			}
			for _, s := range g.Specs {
				for _, n := range s.(*ast.ValueSpec).Names {
					if strings.HasPrefix(n.Name, "Err") {
						found = append(found, n.Name)
					}
				}
			}
		}
	}
	var known []string
	for name := range raftErrors() {
		known = append(known, name)
	}
	slices.Sort(found)
	slices.Sort(known)
	if diff := cmp.Diff(found, known); diff != "" {
		t.Errorf("raft's errors and the table differ (-raft +table):\n%s", diff)
	}
}
