// Package quick is sbatch in its common uses, with as little linked as
// possible: most of the time of a submit is the program's start. It uses the
// packages that berth sbatch builds on. What it leaves to berth sbatch,
// including every error, it leaves before it has printed anything.
package quick

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/batch"
	"github.com/berth-scheduler/berth/cmd/internal/build"
	"github.com/berth-scheduler/berth/cmd/internal/cli/link"
	"github.com/berth-scheduler/berth/cmd/internal/devnote"
	"github.com/berth-scheduler/berth/cmd/internal/escape"
	"github.com/berth-scheduler/berth/cmd/internal/sbatch"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"
	"github.com/berth-scheduler/berth/proto/conv/plainconv"
)

// patience is how long a coordinator may take to answer before berth, which
// also asks the others, takes over.
const patience = 3 * time.Second

// Env is what Sbatch touches outside its arguments.
type Env struct {
	batch.Caller
	UID            string
	Getenv         func(string) string
	Setenv         func(name, value string) error
	Sockets        func() []string
	Dial           func(ctx context.Context, socket string) (net.Conn, error)
	RequestID      func() (string, error)
	Stdout, Stderr io.Writer
}

// System returns the Env of this process.
func System() *Env {
	return &Env{
		Caller: batch.Caller{Getwd: os.Getwd, Hostname: os.Hostname, Environ: os.Environ, Now: time.Now},
		UID:    strconv.Itoa(os.Getuid()),
		Getenv: os.Getenv, Setenv: os.Setenv,
		Sockets: func() []string { return devnote.Sockets(os.Getenv("BERTH_SOCKET"), devnote.Running) },
		Dial: func(ctx context.Context, socket string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
		RequestID: requestID,
		Stdout:    os.Stdout, Stderr: os.Stderr,
	}
}

// requestID avoids crypto/rand, whose start takes longer than all of this.
func requestID() (string, error) {
	var b [16]byte
	if n, err := unix.Getrandom(b[:], 0); err != nil || n < len(b) {
		return "", fmt.Errorf("random numbers: %d of %d, %w", n, len(b), err)
	}
	return hex.EncodeToString(b[:]), nil
}

// Sbatch submits as sbatch does, given its arguments. It reports whether it
// did, and then the exit code; if not, berth sbatch must do it, and finds the
// request id of a possible submit in the environment.
func Sbatch(args []string, e *Env) (code int, done bool) {
	set, rest, ok := scan(words(args))
	if !ok {
		return 0, false
	}
	if first, _ := sbatch.Resolve(set, nil); first.Version {
		return e.say(slurm.Versioned + "\n")
	}
	j, asked := e.job(set, rest)
	if j == nil {
		return 0, false
	}
	id, err := e.RequestID()
	if err != nil {
		return 0, false
	}
	e.warn(batch.SecretsWarning(j.Spec.Env, j.Spec.Command))
	folders := batch.OutputFolders(&j.Spec, e.UID, true)
	got, err := e.submit(id, &j.Spec)
	if err != nil || len(got.IDs) != 1 {
		return 0, batch.LeaveID(id, e.Setenv) != nil
	}
	for _, w := range got.Warnings {
		e.warn(w)
	}
	for _, f := range slices.Concat(got.Promises, folders) {
		if !asked.Quiet {
			fmt.Fprintln(e.Stderr, "sbatch: "+escape.Text(f))
		}
	}
	if asked.Parsable {
		return e.say(fmt.Sprintln(got.IDs[0]))
	}
	return e.say(fmt.Sprintf("Submitted batch job %d\n", got.IDs[0]))
}

func words(args []string) []sbatch.Word {
	out := make([]sbatch.Word, len(args))
	for i, a := range args {
		out[i].Text = a
	}
	return out
}

// scan parses options that are all Slurm's and spelled in full: other
// options, and the meaning of an abbreviation, depend on Berth's own.
func scan(w []sbatch.Word) (set []sbatch.Setting, rest []sbatch.Word, ok bool) {
	set, faults, rest := sbatch.Scan(w, sbatch.FromCommandLine, nil, false)
	return set, rest, len(faults) == 0 && full(w[:len(w)-len(rest)])
}

func full(words []sbatch.Word) bool {
	all := sbatch.SlurmOptions()
	return !slices.ContainsFunc(words, func(w sbatch.Word) bool {
		name, long := strings.CutPrefix(w.Text, "--")
		name, _, _ = strings.Cut(name, "=")
		return long && name != "" && !slices.ContainsFunc(all, func(o sbatch.Option) bool { return o.Name == name })
	})
}

// job builds the job, nil if it needs any message beyond those of an ordinary submit.
func (e *Env) job(set []sbatch.Setting, rest []sbatch.Word) (*batch.Job, *sbatch.Request) {
	j := &batch.Job{}
	var asked *sbatch.Request
	if len(rest) > 0 {
		asked = e.script(j, set, rest)
	} else {
		asked = e.wrap(j, set)
	}
	if asked == nil {
		return nil, nil
	}
	j.ImpliedGPUs(false)
	if warnings, err := j.Settle(&e.Caller); err != nil || len(warnings) > 0 {
		return nil, nil
	}
	if j.Place() != nil || j.Spec.Check() != nil || !plainconv.Carries(&j.Spec) {
		return nil, nil
	}
	return j, asked
}

// wrap makes j the job of --wrap, and returns the request, nil if that is not plain.
func (e *Env) wrap(j *batch.Job, set []sbatch.Setting) *sbatch.Request {
	asked, outcomes := sbatch.Resolve(slices.Concat(sbatch.FromEnv(e.Environ()), set), nil)
	if !asked.Wrapped || !plain(asked, outcomes) { // else the script is on standard input
		return nil
	}
	j.Take(asked)
	if j.Wrap(&e.Caller, asked) != nil {
		return nil
	}
	return asked
}

// script is wrap for a script and its arguments.
func (e *Env) script(j *batch.Job, set []sbatch.Setting, words []sbatch.Word) *sbatch.Request {
	name := words[0].Text
	if name == "-" {
		return nil
	}
	data, path, err := batch.ReadScript(&e.Caller, name, readRegular, nil)
	if err != nil {
		return nil
	}
	script, err := sbatch.Read(data)
	if err != nil || len(script.Berth) > 0 || len(script.Late) > 0 || !full(script.Slurm) {
		return nil
	}
	lines, faults, _ := sbatch.Scan(script.Slurm, sbatch.FromSlurmLine, nil, false)
	all := slices.Concat(lines, sbatch.FromEnv(e.Environ()), set)
	asked, outcomes := sbatch.Resolve(all, faults)
	if asked.Wrapped || !plain(asked, append(outcomes, script.Outcomes(all)...)) {
		return nil
	}
	var args []string
	for _, w := range words[1:] {
		args = append(args, w.Text)
	}
	j.Take(asked)
	if j.Script(&e.Caller, asked, data, path, args) != nil {
		return nil
	}
	return asked
}

// plain reports whether the request needs no more than a submit, and is fully
// supported.
func plain(a *sbatch.Request, outcomes []sbatch.Outcome) bool {
	if a.Wait || a.Test || a.Verbose || a.Help || a.Cluster != "" || a.GPUType != "" || len(a.Own) > 0 {
		return false
	}
	return !slices.ContainsFunc(outcomes, func(o sbatch.Outcome) bool { return o.Fate == sbatch.Ignored || o.Fate == sbatch.Refused })
}

func readRegular(name string, most int64) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, fmt.Errorf("open %s: not a regular file", name)
	}
	return io.ReadAll(io.LimitReader(f, most+1))
}

// submit asks the first coordinator.
func (e *Env) submit(id string, s *cluster.Spec) (plainconv.Submitted, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	header := [][2]string{{"user-agent", "berth-sbatch/" + build.Version}}
	if shows := link.Credential(e.Getenv(cluster.CredentialVar)); shows != "" {
		header = append(header, [2]string{cluster.CredentialKey, shows})
	}
	socket := e.Sockets()[0]
	conn := &link.Conn{
		Header: header, Most: 1 << 20, Sent: func() {}, Unsent: func() {},
		Dial: func(ctx context.Context) (net.Conn, error) { return e.Dial(ctx, socket) },
	}
	defer conn.Close()
	resp, err := conn.Invoke(ctx, "/berth.api.v1.JobService/SubmitJobs", plainconv.AppendSubmit(make([]byte, link.Head, 4<<10), id, s))
	if err != nil {
		return plainconv.Submitted{}, err
	}
	return plainconv.ReadSubmitted(resp)
}

func (e *Env) warn(text string) {
	if text != "" {
		fmt.Fprintln(e.Stderr, "sbatch: warning: "+escape.Text(text))
	}
}

// say prints the result; a reader that has gone is no failure of the submit.
func (e *Env) say(text string) (code int, done bool) {
	if _, err := io.WriteString(e.Stdout, text); err != nil {
		fmt.Fprintln(e.Stderr, "sbatch: error: "+strings.TrimSpace(text)+", but: "+escape.Text(err.Error()))
		return 1, true
	}
	return 0, true
}
