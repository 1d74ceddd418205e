// Package jq filters a command's JSON output with an expression in the
// language of jq (https://jqlang.org/manual/), using gojq.
package jq

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/itchyny/gojq"

	"github.com/berth-scheduler/berth/cmd/internal/escape"
)

// Limits of an expression: how long it may work on one value of the command's
// output, and how much it may print, in bytes.
const (
	maxTime  = 30 * time.Second
	maxPrint = 1 << 30
)

// Filter is a parsed expression.
type Filter struct {
	code *gojq.Code
	// Terminal indents values, and makes visible what could steer a terminal.
	Terminal bool
	time     time.Duration
	most     int64
}

// New parses an expression. It sees the value and nothing else: no
// environment, no files.
func New(expr string) (*Filter, error) {
	q, err := gojq.Parse(expr)
	if e, ok := errors.AsType[*gojq.ParseError](err); ok {
		return nil, fmt.Errorf("%s %s", trim(e.Error()), place(expr, min(e.Offset-len(e.Token), len(expr))))
	}
	if err != nil {
		return nil, errors.New(trim(err.Error()))
	}
	code, err := gojq.Compile(q)
	if err != nil {
		return nil, errors.New(unknown(expr, trim(err.Error())))
	}
	return &Filter{code: code, time: maxTime, most: maxPrint}, nil
}

// place locates an error in an expression, by characters from 1.
func place(expr string, at int) string {
	at = max(0, at)
	if strings.TrimSpace(expr[at:]) == "" {
		return "at its end"
	}
	rest := []rune(expr[at:])
	return fmt.Sprintf("at character %d: %s", len([]rune(expr[:at]))+1, escape.Text(string(rest[:min(len(rest), 30)])))
}

// unknown adds the position of the name that the compiler does not know, as
// in "function not defined: foo/1".
func unknown(expr, msg string) string {
	_, name, ok := strings.Cut(msg, ": ")
	name, _, _ = strings.Cut(name, "/")
	if at := strings.Index(expr, name); ok && name != "" && at >= 0 {
		return msg + " " + place(expr, at)
	}
	return msg
}

func trim(msg string) string { return strings.TrimPrefix(msg, "gojq: ") }

// Run applies the filter to each JSON value that arrives, and prints the
// results at once, one per line: strings unquoted, and nothing else in
// quotes.
func (f *Filter) Run(ctx context.Context, in io.Reader, to io.Writer) error {
	dec := json.NewDecoder(in)
	dec.UseNumber()
	out := &limited{w: bufio.NewWriter(to), left: f.most}
	for n := 1; ; n++ {
		var v any
		err := dec.Decode(&v)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the command's output is not JSON: %w", err)
		}
		err = f.one(ctx, v, out)
		if ferr := out.w.Flush(); err == nil {
			err = ferr
		}
		if h, ok := errors.AsType[*gojq.HaltError](err); ok && h.Value() == nil {
			return nil
		}
		if err != nil && n > 1 {
			err = fmt.Errorf("value %d: %w", n, err)
		}
		if err != nil {
			return err
		}
	}
}

// one applies the filter to a value.
func (f *Filter) one(ctx context.Context, v any, out *limited) error {
	ctx, cancel := context.WithTimeout(ctx, f.time)
	defer cancel()
	it := f.code.RunWithContext(ctx, v)
	for {
		x, ok := it.Next()
		if !ok {
			return nil
		}
		if err, bad := x.(error); bad {
			if errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("the expression took %s on one value, which is the limit", f.time)
			}
			return err
		}
		line, err := f.text(x)
		if err != nil {
			return err
		}
		if err := out.line(line); err != nil {
			return err
		}
	}
}

// text formats a result.
func (f *Filter) text(x any) (string, error) {
	if s, ok := x.(string); ok {
		if f.Terminal {
			s = lines(s)
		}
		return s, nil
	}
	raw, err := gojq.Marshal(x)
	if err != nil {
		return "", err
	}
	if !f.Terminal {
		return string(raw), nil
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(json.RawMessage(raw)); err != nil {
		return "", err
	}
	return lines(strings.TrimSuffix(b.String(), "\n")), nil
}

// limited writes lines up to a limit.
type limited struct {
	w    *bufio.Writer
	left int64
}

func (l *limited) line(s string) error {
	if l.left -= int64(len(s)) + 1; l.left < 0 {
		return errors.New("the expression prints more than " + strconv.Itoa(maxPrint>>20) + " MiB, which is the limit")
	}
	if _, err := l.w.WriteString(s); err != nil {
		return err
	}
	return l.w.WriteByte('\n')
}

// lines makes visible what could steer a terminal, except line ends.
func lines(s string) string {
	all := strings.Split(s, "\n")
	for i, l := range all {
		all[i] = escape.Text(l)
	}
	return strings.Join(all, "\n")
}
