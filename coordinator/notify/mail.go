package notify

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"mime"
	"mime/quotedprintable"
	"slices"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/program"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

const (
	mailTimeout = 30 * time.Second
	// mostSingle is how many notices waiting for one address are sent one by one;
	// more go into one mail of at most mostInMail lines.
	mostSingle = 5
	mostInMail = 500
)

// Mailer sends mail through a sendmail-compatible program. Its zero value sends
// none.
type Mailer struct {
	// Program is an absolute path, "" for no mail. It is run without a shell as
	// PROGRAM -i -f SENDER -- ADDRESS…, with the message on its standard input,
	// and has 30 s to return 0. What it leaves in the background goes on.
	Program string
	// Sender is the address that mail comes from.
	Sender string
	// Domain is added to names without one, "" for none. Domains are those that
	// mail may go to, empty for all; names without one are always allowed.
	Domain  string
	Domains []string
	// Cluster and ClusterID identify the origin.
	Cluster, ClusterID string
}

// errForGood is a permanent failure.
var errForGood = errors.New("not sent")

func (m *Mailer) recipients(n *logv1.Notice) ([]string, error) {
	to := cluster.Mail{To: cmp.Or(n.To, n.User)}
	if err := to.Check(); err != nil || to.To == "" {
		return nil, fmt.Errorf("%w: %.80q is not an address", errForGood, to.To)
	}
	out := strings.Split(to.To, ",")
	for i, a := range out {
		_, domain, there := strings.Cut(a, "@")
		switch {
		case !there && m.Domain != "":
			out[i] = a + "@" + m.Domain
		case there && len(m.Domains) > 0 && !slices.ContainsFunc(m.Domains, func(d string) bool { return strings.EqualFold(d, domain) }):
			return nil, fmt.Errorf("%w: this site sends no mail to %s; notify.mail_domains lists where it does", errForGood, plain(domain))
		}
	}
	return out, nil
}

// Send sends one mail of notices that all go to the same recipients. An error
// that wraps errForGood is final.
func (m *Mailer) Send(ctx context.Context, ns []*logv1.Notice, now time.Time) error {
	to, err := m.recipients(ns[0])
	if err != nil {
		return err
	}
	args := append([]string{"-i", "-f", m.Sender, "--"}, to...)
	return program.Program{Path: m.Program, Timeout: mailTimeout}.Run(ctx, m.message(ns, to, now), args...)
}

// message returns the mail as passed to the program. Whatever users chose is in
// encoded words or in the body, so that it can add no header.
func (m *Mailer) message(ns []*logv1.Notice, to []string, now time.Time) []byte {
	subject, body := Subject(ns[0]), Body(ns[0], m.Cluster)
	if len(ns) > 1 {
		subject, body = m.digest(ns)
	}
	first := ns[0]
	var b bytes.Buffer
	header := func(key, value string) { b.WriteString(key + ": " + value + "\n") }
	header("From", m.Sender)
	header("To", strings.Join(to, ", "))
	header("Subject", mime.QEncoding.Encode("utf-8", subject))
	header("Date", now.UTC().Format(time.RFC1123Z))
	header("Message-ID", fmt.Sprintf("<%s@%s>", ID(m.ClusterID, first), "berth.invalid"))
	header("Auto-Submitted", "auto-generated")
	header("X-Berth-Notice", ID(m.ClusterID, first))
	header("MIME-Version", "1.0")
	header("Content-Type", "text/plain; charset=utf-8")
	header("Content-Transfer-Encoding", "quoted-printable")
	b.WriteString("\n")
	var text bytes.Buffer
	w := quotedprintable.NewWriter(&text)
	_, _ = w.Write([]byte(body)) // into memory
	_ = w.Close()
	b.Write(bytes.ReplaceAll(text.Bytes(), []byte("\r\n"), []byte("\n"))) // as sendmail expects it
	return b.Bytes()
}

// digest returns many notices as one mail.
func (m *Mailer) digest(ns []*logv1.Notice) (subject, body string) {
	var b strings.Builder
	fmt.Fprintf(&b, "%d notices came too fast to be sent one by one:\n\n", len(ns))
	for _, n := range ns {
		b.WriteString(time.UnixMicro(n.AtUs).UTC().Format("15:04:05 ") + Subject(n) + "\n")
	}
	fmt.Fprintf(&b, "\nCluster %s. More: berth history\n", plain(m.Cluster))
	return fmt.Sprintf("Berth %d notices of jobs %d to %d", len(ns), ns[0].Job, ns[len(ns)-1].Job), b.String()
}

// ID identifies a notice permanently: a receiver can recognise duplicates by it.
func ID(clusterID string, n *logv1.Notice) string {
	return fmt.Sprintf("%s-%d", token(clusterID), n.Seq)
}

// token returns s without anything that could end a header or an id.
func token(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.' {
			return r
		}
		return '_'
	}, s)
}
