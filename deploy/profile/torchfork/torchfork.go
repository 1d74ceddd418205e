// Package torchfork gives tests a Python that has already imported PyTorch: importing it takes
// seconds each time, and tests run dozens of programs. Each program runs in a fork of one
// process that has imported it, with the arguments, environment, open files, limits and process
// group that it was started with.
package torchfork

import (
	"bufio"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

//go:embed serve.py
var source string

// Python is a pair of interpreters with PyTorch.
type Python struct {
	Real string // the interpreter itself
	Fork string // a program that replaces it, and need not import PyTorch again
}

// Start looks for an interpreter with PyTorch among those given by name or path. What it starts
// ends with the calling process, and leaves no file behind.
func Start(interpreters ...string) (Python, error) {
	var errs []error
	for _, p := range interpreters {
		fork, err := start(p)
		if err == nil {
			return Python{Real: p, Fork: fork}, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", p, err))
	}
	return Python{}, errors.Join(errs...)
}

func start(python string) (string, error) {
	dir, err := os.MkdirTemp("", "torchfork-")
	if err != nil {
		return "", err
	}
	cmd := exec.Command(python, "-c", source, dir)
	var words strings.Builder
	cmd.Stderr = &words
	// Nothing is ever written to it: it ends when we do.
	if _, err := cmd.StdinPipe(); err != nil {
		return "", err
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		err = errors.Join(cmd.Wait(), os.RemoveAll(dir))
		return "", fmt.Errorf("it has no PyTorch, or is no Python (%w)\n%s", err, words.String())
	}
	go cmd.Wait() // it outlives every test
	return strings.TrimSpace(line), nil
}
