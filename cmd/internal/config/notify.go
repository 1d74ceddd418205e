package config

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
)

// Notify says how users are notified about their jobs; see docs/notifications.md.
type Notify struct {
	// Sendmail is the program that sends mail; empty sends none. Sender is the
	// address it comes from.
	Sendmail string `yaml:"sendmail"`
	Sender   string `yaml:"sender"`
	// MailDomain is added to users' names; empty leaves that to the program.
	MailDomain string `yaml:"mail_domain"`
	// MailDomains are where mail may go; empty means everywhere.
	MailDomains []string `yaml:"mail_domains"`
	// Webhooks says who may add webhooks: users, admins or off.
	Webhooks string `yaml:"webhooks"`
	// WebhookAllow are networks in which webhooks are called although they are
	// of this machine, of its link or of a cloud's metadata or, where users
	// may add webhooks, of the site's own.
	WebhookAllow []string `yaml:"webhook_allow"`
}

// Networks parses WebhookAllow.
func (n *Notify) Networks() ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, text := range n.WebhookAllow {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			a, err := netip.ParseAddr(text)
			if err != nil {
				return nil, fmt.Errorf("holds %.80q, want networks such as 127.0.0.0/8 or ::1", text)
			}
			p = netip.PrefixFrom(a, a.BitLen())
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

func (p *Problems) notify(n *Notify) {
	p.path("notify.sendmail", n.Sendmail, optional)
	sender := cluster.Mail{To: n.Sender}
	if err := sender.Check(); err != nil || strings.Contains(n.Sender, ",") {
		p.addf("notify.sender", "is %.80q, want one address such as berth@example.org", n.Sender)
	}
	if n.Sendmail != "" && n.Sender == "" {
		p.addf("notify.sender", "is missing; mail needs a sender address, such as berth@example.org")
	}
	for _, d := range append([]string{n.MailDomain}, n.MailDomains...) {
		if d != "" && (cluster.Mail{To: "x@" + d}).Check() != nil {
			p.addf("notify.mail_domains", "holds %.80q, want domains such as example.org", d)
		}
	}
	p.oneOf("notify.webhooks", n.Webhooks, "users", "admins", "off")
	if _, err := n.Networks(); err != nil {
		p.addf("notify.webhook_allow", "%v", err)
	}
}
