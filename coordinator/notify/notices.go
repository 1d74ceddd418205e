package notify

import (
	"net/netip"
	"time"
)

// Notices configures how users are notified about jobs. The zero value sends no
// mail and lets no user add webhooks.
type Notices struct {
	Mail Mailer // Cluster and ClusterID are filled in
	// Webhooks says who may add webhooks.
	Webhooks WebhookUsers
	// Allow are networks that webhooks may be in although they belong to this
	// machine, to its link, to a cloud's metadata, or with WebhooksUsers to the
	// site.
	Allow []netip.Prefix
	// Tries is how often a notice is sent at most, 0 for 15; FirstPause is the
	// pause after the first, 0 for a second. Each is twice the one before.
	Tries      int
	FirstPause time.Duration
}

// WebhookUsers says who may add webhooks.
type WebhookUsers uint8

// No users, administrators, or all users.
const (
	WebhooksOff WebhookUsers = iota
	WebhooksAdmins
	WebhooksUsers
)
