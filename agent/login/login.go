// Package login moves users who log in to a node into the control group of their job there: the
// agent answers on a socket that only root can reach, and berth pam, started by sshd through
// pam_exec, asks. A question is one line of JSON, and so is the answer.
package login

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"
)

const (
	// SocketName is the socket's name in the agent's data directory.
	SocketName = "login.sock"
	// Limit is the time limit for a question and its answer.
	Limit    = 3 * time.Second
	maxLine  = 4096
	maxAsked = 64 // at once
)

// ErrNoAgent matches errors of Ask that are not answers: nothing listens, or not in time.
var ErrNoAgent = errors.New("the agent of this node does not answer")

// Who is the user who logs in. Name counts only where UID is -1, unknown.
type Who struct {
	UID  int64  `json:"uid"`
	Name string `json:"name"`
}

// Question is what berth pam asks. With a PID, that process is moved into the job's control
// group; without one, it only asks for the job.
type Question struct {
	Who Who `json:"who"`
	PID int `json:"pid,omitempty"`
}

// Answer names the user's newest running job, or says why there is none.
type Answer struct {
	Job     string `json:"job,omitempty"`
	Refused string `json:"refused,omitempty"`
}

// Host knows the jobs of a node; the agent is one.
type Host interface {
	// Resident returns the user's newest job that runs here.
	Resident(who Who) (job string, err error)
	// Adopt moves a process into the control group of that job.
	Adopt(who Who, pid int) (job string, err error)
}

// Listen creates the socket; only root can reach it.
func Listen(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("socket for logins: %w", err)
	}
	ln, err := net.Listen("unix", path)
	if err == nil {
		err = os.Chmod(path, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("socket for logins: %w", err)
	}
	return ln, nil
}

// Serve answers on ln until ctx ends.
func Serve(ctx context.Context, ln net.Listener, h Host, log *slog.Logger) error {
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	var wg sync.WaitGroup
	defer wg.Wait()
	free := make(chan struct{}, maxAsked)
	for {
		conn, err := ln.Accept()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("socket for logins: %w", err)
		}
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			answer(conn, h, log)
		})
	}
}

// answer serves one connection.
func answer(conn net.Conn, h Host, log *slog.Logger) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(Limit)) // a socket takes one
	var q Question
	if err := readLine(conn, &q); err != nil {
		log.Warn("malformed question on the socket for logins", "err", err)
		return
	}
	ask := h.Resident
	if q.PID != 0 {
		ask = func(w Who) (string, error) { return h.Adopt(w, q.PID) }
	}
	job, err := ask(q.Who)
	a := Answer{Job: job}
	if err != nil {
		a = Answer{Refused: err.Error()}
	}
	if q.PID != 0 {
		log.Info("login", "user", q.Who.Name, "uid", q.Who.UID, "pid", q.PID, "job", a.Job, "refused", a.Refused)
	}
	_ = json.NewEncoder(conn).Encode(a) // a client that has gone needs none
}

// Ask asks the agent behind the socket at path.
func Ask(path string, q Question) (Answer, error) {
	conn, err := net.DialTimeout("unix", path, Limit)
	if err != nil {
		return Answer{}, fmt.Errorf("%w: %w", ErrNoAgent, err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(Limit)) // a socket takes one
	var a Answer
	if err := json.NewEncoder(conn).Encode(q); err != nil {
		return Answer{}, fmt.Errorf("%w: %w", ErrNoAgent, err)
	}
	if err := readLine(conn, &a); err != nil {
		return Answer{}, fmt.Errorf("%w: %w", ErrNoAgent, err)
	}
	return a, nil
}

// readLine reads one message, of limited length.
func readLine(r io.Reader, v any) error {
	line, err := bufio.NewReader(io.LimitReader(r, maxLine)).ReadBytes('\n')
	if err != nil {
		return err
	}
	return json.Unmarshal(line, v)
}
