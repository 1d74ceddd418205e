package notify

import (
	"net/netip"
	"time"
)

// Notices says how users are told of jobs. The zero value sends no mail and lets
// nobody add webhooks.
type Notices struct {
	Mail Mailer // Cluster and ClusterID are filled in
	// Webhooks says who may add some.
	Webhooks WebhookUsers
	// Allow are networks that webhooks may be at although they belong to this
	// machine, to its link, to a cloud's metadata, or with WebhooksUsers to the site.
	Allow []netip.Prefix
	// Tries is how often a notice is sent at most, 0 for 15; FirstPause is that
	// after the first, 0 for a second. Each is twice the one before.
	Tries      int
	FirstPause time.Duration
}

// WebhookUsers is who may add webhooks.
type WebhookUsers uint8

// Nobody, administrators, or everybody.
const (
	WebhooksOff WebhookUsers = iota
	WebhooksAdmins
	WebhooksUsers
)
