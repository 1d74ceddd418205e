package config

import (
	"net"
	"regexp"
	"slices"
	"strings"
)

// hostName is a host as browsers name it.
var hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$`)

func (p *Problems) web(c *Coordinator) {
	p.optionalAddr("listen.web", c.Listen.Web)
	if len(c.Listen.WebNames) > 32 {
		p.addf("listen.web_names", "has %d names, want at most 32", len(c.Listen.WebNames))
	}
	for i, n := range c.Listen.WebNames {
		if !hostName.MatchString(n) && net.ParseIP(n) == nil {
			p.addf(indexed("listen.web_names", i), "is %.80q, want a host name or an address without a port, such as gpu.example.org", n)
		}
	}
	p.path("tls.web_cert", c.TLS.WebCert, optional)
	p.path("tls.web_key", c.TLS.WebKey, optional)
	if (c.TLS.WebCert == "") != (c.TLS.WebKey == "") {
		p.addf("tls.web_cert", "and tls.web_key belong together; give both, or none")
	}
}

// WebPlain reports whether the page for browsers is plain HTTP: only this machine can
// reach it.
func (c *Coordinator) WebPlain() bool {
	host, _, _ := net.SplitHostPort(c.Listen.Web)
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// WebHosts are the names by which browsers may ask for the page, and the address that
// links have.
func (c *Coordinator) WebHosts() (names []string, address string) {
	host, port, _ := net.SplitHostPort(c.Listen.Web)
	add := func(n string) {
		if ip := net.ParseIP(n); n != "" && (ip == nil || !ip.IsUnspecified()) && !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	for _, n := range c.Listen.WebNames {
		add(n)
	}
	add(host)
	advertised, _, _ := net.SplitHostPort(c.AdvertiseAddr())
	scheme := "https"
	if c.WebPlain() {
		scheme = "http"
		for _, n := range []string{"127.0.0.1", "localhost", "::1"} {
			add(n)
		}
	} else {
		add(advertised)
	}
	if len(names) == 0 {
		names = append(names, "localhost")
	}
	return names, scheme + "://" + net.JoinHostPort(strings.Trim(names[0], "[]"), port)
}
