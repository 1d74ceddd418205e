package config

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/safefile"
	"github.com/berth-scheduler/berth/scheduler/elastic"
	"github.com/berth-scheduler/berth/scheduler/policies"
)

// maxSecretBytes bounds certificates and keys when CheckFiles reads them.
const maxSecretBytes = 64 << 10

// Problem is one problem, on one line.
type Problem struct {
	// Key is the configuration key, "" where the file as a whole is wrong.
	Key string
	// Where is the file and line, the variable or the flag; "" if the value
	// came from several places or is a default.
	Where string
	Text  string
	// Err is a cause to match with errors.Is, such as safefile.ErrExposed;
	// may be nil.
	Err error
}

// Problems is every problem of a configuration at once, as an error.
type Problems []Problem

// Error lists the problems, one per line.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, pr := range p {
		lines[i] = strings.TrimSpace(pr.Key + " " + pr.Text)
		if pr.Where != "" {
			lines[i] = pr.Where + ": " + lines[i]
		}
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the causes for errors.Is.
func (p Problems) Unwrap() []error {
	var errs []error
	for _, pr := range p {
		if pr.Err != nil {
			errs = append(errs, pr.Err)
		}
	}
	return errs
}

func (p *Problems) addf(key, format string, args ...any) {
	*p = append(*p, Problem{Key: key, Text: fmt.Sprintf(format, args...)})
}

// err avoids a non-nil error around an empty list.
func (p Problems) err() error {
	if len(p) == 0 {
		return nil
	}
	return p
}

func indexed(key string, i int) string { return key + "[" + strconv.Itoa(i) + "]" }

func (p *Problems) name(key, s string) {
	switch err := cluster.CheckName("", s); {
	case s == "":
		p.addf(key, "is missing; give a name of 1 to 63 characters: a-z, 0-9, '.', '_', '-'")
	case err != nil:
		p.addf(key, "is %.80q, want 1 to 63 characters a-z, 0-9, '.', '_', '-', the first a letter or digit", s)
	}
}

func (p *Problems) text(key, s string, limit int) {
	if len(s) > limit {
		p.addf(key, "has %d bytes, want at most %d", len(s), limit)
	}
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsGraphic(r) }) {
		p.addf(key, "is %.80q, want printable text", s)
	}
}

func (p *Problems) number(key string, n, lo, hi int) {
	if n < lo || n > hi {
		p.addf(key, "is %d, want %d to %d", n, lo, hi)
	}
}

// factor checks for 0, which disables something, or a value between lo and hi.
func (p *Problems) factor(key string, v, lo, hi float64) {
	if v != 0 && !(v >= lo && v <= hi) {
		p.addf(key, "is %v, want %v to %v, or 0 for no limit", v, lo, hi)
	}
}

// shares checks how jobs share GPUs.
func (s *Scheduling) shares(p *Problems) {
	p.number("scheduling.max_shares", s.MaxShares, 1, 16)
	p.factor("scheduling.max_slowdown", s.MaxSlowdown, 1.01, 10)
	if !(s.Overcommit >= 1 && s.Overcommit <= 2) {
		p.addf("scheduling.overcommit", "is %v, want 1 to 2", s.Overcommit)
	}
}

// fairly checks how fair shares count.
func (s *Scheduling) fairly(p *Problems) {
	if f := s.Fairshare; !(f >= 0 && f <= 1) {
		p.addf("scheduling.fairshare", "is %v, want 0 (fair share does not count) to 1 (only it counts)", f)
	}
	if s.Trading && s.Fairshare == 0 {
		p.addf("scheduling.trading", "is true, and needs scheduling.fairshare above 0")
	}
}

func (p *Problems) span(key string, d, lo, hi time.Duration) {
	if d < lo || d > hi {
		p.addf(key, "is %v, want %v to %v", d, lo, hi)
	}
}

func (p *Problems) oneOf(key, s string, allowed ...string) {
	if !slices.Contains(allowed, s) {
		p.addf(key, "is %.80q, want one of %s", s, strings.Join(allowed, ", "))
	}
}

// policy checks the name of a placement, alone or with an order.
func (p *Problems) policy(key, s string) {
	if _, err := policies.New(s, policies.Options{}); err != nil {
		p.addf(key, "is %.80q, want one of %s, alone or with an order as in fgd+qssf: %s", s,
			strings.Join(policies.Names(), ", "), strings.Join(policies.Orders(), ", "))
	}
}

// policies checks the policies of partitions, and how jobs are sized everywhere.
func (p *Problems) policies(key string, s *Scheduling) {
	if _, err := elastic.ParseSizing(s.Sizing); err != nil {
		p.addf("scheduling.sizing", "%v", err)
	}
	_, wrong := s.PolicyOf()
	for i, line := range s.Policies {
		if why, bad := wrong[i]; bad {
			p.addf(indexed(key, i), "%s", why)
			continue
		}
		_, policy, _ := strings.Cut(line, "=")
		p.policy(indexed(key, i), policy)
	}
}

// need says whether a value may be left empty.
type need int

const (
	required need = iota
	optional
)

func (p *Problems) path(key, s string, n need) {
	switch {
	case s == "" && n == optional:
	case s == "":
		p.addf(key, "is empty, want an absolute path")
	case !filepath.IsAbs(s) || filepath.Clean(s) != s || strings.ContainsRune(s, 0):
		p.addf(key, "is %.200q, want an absolute path without '..', '//' or a slash at its end", s)
	}
}

// listenAddr accepts host:port where the host may be empty or a wildcard.
func (p *Problems) listenAddr(key, s string) { p.hostPort(key, s) }

func (p *Problems) optionalAddr(key, s string) {
	if s != "" {
		p.hostPort(key, s)
	}
}

// dialAddr accepts host:port that others can dial.
func (p *Problems) dialAddr(key, s string) {
	host, ok := p.hostPort(key, s)
	if !ok {
		return
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		p.addf(key, "is %q, which nobody can dial; give the host name or address that others reach this machine at", s)
	}
}

func (p *Problems) hostPort(key, s string) (host string, ok bool) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		if strings.Count(s, ":") > 1 && !strings.Contains(s, "/") && !strings.Contains(s, "[") {
			p.addf(key, "is %.200q, want host:port with an IPv6 address in brackets, as in [fd00::1]:7070", s)
		} else {
			p.addf(key, "is %.200q, want host:port without a scheme or spaces", s)
		}
		return "", false
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || strconv.FormatUint(n, 10) != port {
		p.addf(key, "is %.200q, want a port from 1 to 65535", s)
		return "", false
	}
	if strings.ContainsFunc(host, func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsGraphic(r) || strings.ContainsRune("/@?#", r)
	}) {
		p.addf(key, "is %.200q, want host:port without a scheme, spaces or '/'", s)
		return "", false
	}
	return host, true
}

func (p *Problems) gossip(g Gossip) {
	if g.Addr == "" {
		return
	}
	p.listenAddr("gossip.addr", g.Addr)
	// Gossip without a key would expose the decoder to strangers.
	p.path("gossip.key_file", g.KeyFile, required)
	for i, addr := range g.Join {
		p.dialAddr(indexed("gossip.join", i), addr)
	}
}

func (p *Problems) users(u Users) {
	p.number("users.min_uid", u.MinUID, 1, 1<<31-1)
	for i, who := range u.Admins {
		if who == "" || len(who) > 64 || strings.ContainsFunc(who, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsGraphic(r) || r == ':' }) {
			p.addf(indexed("users.admins", i), "is %.80q, want a user name or a numeric uid", who)
		}
	}
}

func (p *Problems) log(l Log) {
	p.oneOf("log.level", l.Level, "debug", "info", "warn", "error")
	p.oneOf("log.format", l.Format, "auto", "text", "json")
}

// file checks one file that must be readable; an empty path is checked elsewhere.
func (p *Problems) file(key, path string, secret bool) {
	if path == "" {
		return
	}
	read := safefile.Read
	if secret {
		read = safefile.ReadSecret
	}
	if _, err := read(path, maxSecretBytes); err != nil {
		*p = append(*p, Problem{Key: key, Text: err.Error(), Err: err})
	}
}

// dataDir rejects an existing path that is not a folder; a missing one is made later.
func (p *Problems) dataDir(key, path string) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		*p = append(*p, Problem{Key: key, Text: err.Error(), Err: err})
	case info.Mode()&os.ModeSymlink != 0:
		p.addf(key, "%s is a symbolic link; name the folder itself, or mount it there", path)
	case !info.IsDir():
		p.addf(key, "%s is not a folder", path)
	}
}
