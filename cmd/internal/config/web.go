package config

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// WebProxy is a site's own proxy in front of the web page: it authenticates
// users and names them in a header. Empty means none.
type WebProxy struct {
	// Header carries the user's name.
	Header string `yaml:"header"`
	// From are the proxy's addresses or networks.
	From []string `yaml:"from"`
	// Secret is a file with what the proxy sends as Berth-Proxy-Secret.
	Secret string `yaml:"secret"`
}

// Networks parses From.
func (w *WebProxy) Networks() ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, text := range w.From {
		n, err := netip.ParsePrefix(text)
		if a, aerr := netip.ParseAddr(text); err != nil && aerr == nil {
			n, err = a.Prefix(a.BitLen())
		}
		if err != nil {
			return nil, fmt.Errorf("is %.80q, want an address such as 10.0.0.5, or a network such as 10.0.0.0/24", text)
		}
		out = append(out, n.Masked())
	}
	return out, nil
}

// headerName matches an HTTP header's name.
var headerName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]{0,63}$`)

func checkWebProxy(p *Problems, c *Coordinator) {
	w := &c.Listen.WebProxy
	if w.Header == "" && len(w.From) == 0 && w.Secret == "" {
		return
	}
	if c.Listen.Web == "" {
		p.addf("listen.web_proxy", "has an effect only with listen.web")
	}
	if !headerName.MatchString(w.Header) {
		p.addf("listen.web_proxy.header", "is %.80q, want the header in which the proxy names the user, such as X-Remote-User", w.Header)
	}
	if len(w.From) < 1 || len(w.From) > 32 {
		p.addf("listen.web_proxy.from", "has %d addresses, want those of the proxy, 1 to 32", len(w.From))
	}
	if _, err := w.Networks(); err != nil {
		p.addf("listen.web_proxy.from", "%v", err)
	}
	p.path("listen.web_proxy.secret", w.Secret, required)
}

// hostName matches a host as browsers name it.
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
	checkWebProxy(p, c)
	p.path("tls.web_cert", c.TLS.WebCert, optional)
	p.path("tls.web_key", c.TLS.WebKey, optional)
	if (c.TLS.WebCert == "") != (c.TLS.WebKey == "") {
		p.addf("tls.web_cert", "and tls.web_key belong together; give both or neither")
	}
}

// WebPlain reports whether the web page is plain HTTP: only this machine can reach it.
func (c *Coordinator) WebPlain() bool {
	host, _, _ := net.SplitHostPort(c.Listen.Web)
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// WebHosts returns the names by which browsers may request the page, and the
// address used in links.
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
