package daemon

import (
	"fmt"

	"github.com/berth-scheduler/berth/cmd/internal/config"
	"github.com/berth-scheduler/berth/coordinator/notify"
)

// noticesOf returns the configured notifications of users about their jobs.
func noticesOf(n *config.Notify) (notify.Notices, error) {
	nets, err := n.Networks()
	if err != nil {
		return notify.Notices{}, fmt.Errorf("notify.webhook_allow: %w", err)
	}
	users := map[string]notify.WebhookUsers{"users": notify.WebhooksUsers, "admins": notify.WebhooksAdmins}
	return notify.Notices{
		Mail:     notify.Mailer{Program: n.Sendmail, Sender: n.Sender, Domain: n.MailDomain, Domains: n.MailDomains},
		Webhooks: users[n.Webhooks], Allow: nets,
	}, nil
}
