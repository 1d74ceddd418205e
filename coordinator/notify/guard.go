package notify

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
)

const maxURL = 2048

// CheckURL says what is wrong with the address of a webhook, "" for nothing. Its
// target is checked when it is called: names may change.
func CheckURL(raw string) error {
	if len(raw) > maxURL {
		return fmt.Errorf("%d bytes, at most %d are allowed", len(raw), maxURL)
	}
	if strings.ContainsFunc(raw, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("holds a space, a control character or one that is not ASCII; escape it")
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Opaque != "":
		return fmt.Errorf("is not an address; want https://HOST[:PORT]/PATH")
	case u.Scheme != "https" && u.Scheme != "http":
		return fmt.Errorf("has scheme %.20q, want https or http", u.Scheme)
	case u.Hostname() == "":
		return fmt.Errorf("has no host; want https://HOST[:PORT]/PATH")
	case u.User != nil:
		return fmt.Errorf("holds a user name or password; requests are signed instead, and administrators can see the address")
	case u.Fragment != "":
		return fmt.Errorf("has a fragment (#), which is never sent")
	}
	return nil
}

// Guard says which addresses webhooks may not have.
type Guard struct {
	// Allow are networks that are allowed all the same.
	Allow []netip.Prefix
	// PublicOnly also bars the site's own networks, for sites where users who are
	// not administrators may choose what the leader calls.
	PublicOnly bool
}

// private returns the networks of a site: RFC 1918, RFC 6598 and RFC 4193, and the
// addresses for documentation and benchmarks, which no host should have.
func private() []netip.Prefix {
	out := []netip.Prefix{}
	for _, p := range []string{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "198.18.0.0/15", "fc00::/7", "fec0::/10"} {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

// forbidden returns networks that belong to this machine, to its link, or to a
// cloud's metadata, and not to any user of webhooks.
func forbidden() []netip.Prefix {
	out := []netip.Prefix{}
	for _, p := range []string{
		"0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4", "192.0.0.0/24", "100.100.100.200/32", "168.63.129.16/32",
		"::/127", "fe80::/10", "ff00::/8", "fd00:ec2::254/128", "fd20:ce::254/128",
	} {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

// embedded returns the IPv4 address that an address of some networks carries, and
// at which byte.
func embedded(a netip.Addr) netip.Addr {
	b := a.As16()
	for p, at := range map[string]int{"64:ff9b::/96": 12, "64:ff9b:1::/48": 12, "2002::/16": 2, "::/96": 12} {
		if a.Is6() && netip.MustParsePrefix(p).Contains(a) {
			return netip.AddrFrom4([4]byte(b[at : at+4]))
		}
	}
	return a
}

// Check refuses an address that webhooks may not have.
func (g *Guard) Check(addr netip.Addr) error {
	plain := addr.WithZone("").Unmap()
	for _, a := range []netip.Addr{plain, embedded(plain)} {
		allowed := slices.ContainsFunc(g.Allow, func(p netip.Prefix) bool { return p.Contains(a) })
		within := func(ps []netip.Prefix) bool {
			return slices.ContainsFunc(ps, func(p netip.Prefix) bool { return p.Contains(a) })
		}
		if g.PublicOnly && !allowed && within(private()) {
			return fmt.Errorf("%w: %s belongs to the site; if users may add webhooks, notify.webhook_allow of the coordinators lists which of its networks may be called", errForGood, a)
		}
		if !allowed && within(forbidden()) {
			return fmt.Errorf("%w: %s belongs to this machine, its link or a cloud's metadata; notify.webhook_allow of the coordinators lists which of these may be called", errForGood, a)
		}
	}
	return nil
}

// control checks each address right before connecting, when its name is finally
// resolved.
func (g *Guard) control(_, address string, _ syscall.RawConn) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return err
	}
	return g.Check(a)
}
