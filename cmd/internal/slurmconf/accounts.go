package slurmconf

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Accounts are the associations and qualities of service that sacctmgr wrote.
type Accounts struct {
	Accounts []Association `json:"accounts,omitempty"`
	Users    []Association `json:"users,omitempty"`
	QOS      []QOS         `json:"qos,omitempty"`
}

// Association is an account, or a user in one, with its options.
type Association struct {
	At   Place  `json:"at"`
	Name string `json:"name"`
	// Account is the parent of an account, empty for root, or the account of a
	// user.
	Account string `json:"account"`
	// Said are its options by name in lower case, except those that name others.
	Said map[string]string `json:"said,omitempty"`
}

// QOS is a quality of service: a row of sacctmgr show qos -P.
type QOS struct {
	At   Place             `json:"at"`
	Name string            `json:"name"`
	Said map[string]string `json:"said,omitempty"`
}

// TRES is one item of a list such as cpu=20,gres/gpu=8.
type TRES struct{ Name, Count string }

// SplitTRES reads such a list.
func SplitTRES(v string) []TRES {
	var out []TRES
	for item := range strings.SplitSeq(v, ",") {
		if name, n, ok := strings.Cut(item, "="); ok {
			out = append(out, TRES{name, n})
		}
	}
	return out
}

// accounts reads the files of sacctmgr, if any.
func (s *Site) accounts(open ReadFile, f Files) error {
	if f.Dump == "" && f.QOS == "" {
		return nil
	}
	s.Accounts = &Accounts{}
	if f.Dump != "" {
		data, err := open(f.Dump)
		if err != nil {
			return err
		}
		s.dump(f.Dump, string(data))
	}
	if f.QOS != "" {
		data, err := open(f.QOS)
		if err != nil {
			return err
		}
		if err := s.qos(f.QOS, string(data)); err != nil {
			return err
		}
	}
	s.tellAccounts()
	return nil
}

// dump reads what sacctmgr dump wrote: lines such as
//
//	Parent - 'physics'
//	User - 'ann':DefaultAccount='physics':Fairshare=10
//
// in which each Parent line applies to those below it.
func (s *Site) dump(file, data string) {
	parent, n := "", 0
	for text := range strings.Lines(data) {
		n++
		text = strings.TrimSpace(text)
		if text == "" || text[0] == '#' {
			continue
		}
		at := Place{file, n}
		kind, rest, ok := strings.Cut(text, " - ")
		fields := quotedFields(rest)
		if !ok || len(fields) == 0 {
			s.say(at, "", pair{Key: firstWord(text)}, Unread, "want a line such as Account - 'physics':Fairshare=1")
			continue
		}
		a := Association{At: at, Name: unquote(fields[0]), Said: map[string]string{}}
		for _, f := range fields[1:] {
			if k, v, ok := strings.Cut(f, "="); ok {
				a.Said[strings.ToLower(k)] = unquote(v)
			}
		}
		if parent != "root" {
			a.Account = parent
		}
		switch strings.ToLower(kind) {
		case "cluster":
			s.say(at, "", pair{Key: kind, Value: a.Name}, Taken, "the cluster of the accounts below")
		case "parent":
			parent = a.Name
		case "account":
			s.Accounts.Accounts = append(s.Accounts.Accounts, a)
		case "user":
			a.Account = cmp.Or(a.Account, parent)
			s.Accounts.Users = append(s.Accounts.Users, a)
		default:
			s.say(at, "", pair{Key: kind, Value: a.Name}, Unread, "is not a line of sacctmgr dump")
		}
	}
}

// quotedFields splits at colons outside of single quotes.
func quotedFields(s string) []string {
	var out []string
	quoted, from := false, 0
	for i := range len(s) {
		switch {
		case s[i] == '\'':
			quoted = !quoted
		case s[i] == ':' && !quoted:
			out, from = append(out, s[from:i]), i+1
		}
	}
	if from < len(s) {
		out = append(out, s[from:])
	}
	return out
}

func unquote(s string) string {
	if len(s) >= 2 && s[0] == '\'' && s[len(s)-1] == '\'' {
		return s[1 : len(s)-1]
	}
	return s
}

// qos reads the table that sacctmgr show qos -P prints, in any order of
// columns.
func (s *Site) qos(file, data string) error {
	r := csv.NewReader(strings.NewReader(data))
	r.Comma, r.LazyQuotes, r.FieldsPerRecord = '|', true, -1
	head, err := r.Read()
	if err != nil {
		return fmt.Errorf("%s: is not a table from sacctmgr -P show qos: %w", file, err)
	}
	name := -1
	for i := range head {
		head[i] = strings.ToLower(strings.TrimSpace(head[i]))
		if head[i] == "name" {
			name = i
		}
	}
	if name < 0 {
		return fmt.Errorf("%s: has no column Name; write it with: sacctmgr -P show qos", file)
	}
	for {
		rec, err := r.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		row, _ := r.FieldPos(0)
		at := Place{file, row}
		if err != nil || len(rec) <= name || rec[name] == "" {
			s.say(at, "", pair{Key: "row"}, Unread, "has no name")
			if err != nil {
				return nil
			}
			continue
		}
		q := QOS{At: at, Name: rec[name], Said: map[string]string{}}
		for i, v := range rec {
			if v = strings.TrimSpace(v); i != name && i < len(head) && v != "" {
				q.Said[head[i]] = v
			}
		}
		s.Accounts.QOS = append(s.Accounts.QOS, q)
	}
}

// tellAccounts gives the command for each account, user and quality of service.
// Shares and priorities mean different things in Slurm and Berth, so a person must
// choose.
func (s *Site) tellAccounts() {
	for _, a := range s.Accounts.Accounts {
		words := []string{"berth", "account", "add", shellWord(a.Name)}
		if a.Account != "" {
			words = append(words, "--parent", shellWord(a.Account))
		}
		if n := a.Said["fairshare"]; n != "" && n != "1" {
			words = append(words, "--shares", shellWord(n))
		}
		s.say(a.At, "", pair{Key: "Account", Value: a.Name}, Dropped, "set it by hand: %s%s", strings.Join(words, " "), limits(a.Said, "--account "+shellWord(a.Name)))
	}
	for _, u := range s.Accounts.Users {
		if u.Name == "root" {
			s.say(u.At, "", pair{Key: "User", Value: u.Name}, Dropped, "administrators are listed in users.admins")
			continue
		}
		s.say(u.At, "", pair{Key: "User", Value: u.Name}, Dropped, "set it by hand: berth account add %s --user %s%s", shellWord(u.Account), shellWord(u.Name), limits(u.Said, "--user "+shellWord(u.Name)))
	}
	for _, q := range s.Accounts.QOS {
		note := "set it by hand: berth qos add " + shellWord(q.Name)
		if p := q.Said["priority"]; p != "" && p != "0" {
			note += " --priority N, from 0 to 100, for Slurm's " + p
		}
		if p := q.Said["preempt"]; p != "" {
			note += " --preempts " + shellWord(p)
		}
		s.say(q.At, "", pair{Key: "QOS", Value: q.Name}, Dropped, "%s%s", note, limits(q.Said, "--qos "+shellWord(q.Name)))
	}
}

// limits are the quotas for Slurm's limits on GPUs.
func limits(said map[string]string, of string) string {
	var out string
	for _, l := range []struct{ key, each string }{{"grptres", ""}, {"maxtrespu", " --each-user"}, {"maxtresperuser", " --each-user"}} {
		for _, t := range SplitTRES(said[l.key]) {
			if t.Name == "gres/gpu" {
				out += "; berth quota set " + of + l.each + " --gpus " + shellWord(t.Count)
			}
		}
	}
	return out
}
