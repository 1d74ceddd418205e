package notify

import (
	"net/netip"
	"strings"
	"testing"
)

func TestGuard(t *testing.T) {
	t.Parallel()
	var none, lab Guard
	lab.Allow = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	for addr, ok := range map[string]bool{
		"93.184.216.34": true, "10.1.2.3": true, "192.168.1.1": true, "2606:2800:220:1::1": true, "100.64.0.1": true,
		"127.0.0.1": false, "127.9.9.9": false, "0.0.0.0": false, "169.254.169.254": false, "169.254.1.1": false, "224.0.0.1": false, "255.255.255.255": false,
		"100.100.100.200": false, "168.63.129.16": false, "::1": false, "::": false, "fe80::1": false, "fe80::1%eth0": false, "ff02::1": false, "fd00:ec2::254": false,
		"::ffff:127.0.0.1": false, "::ffff:169.254.169.254": false, "::127.0.0.1": false, "64:ff9b::a9fe:a9fe": false, "2002:7f00:1::": false, "64:ff9b::5db8:d822": true,
	} {
		a := netip.MustParseAddr(addr)
		if err := none.Check(a); (err == nil) != ok {
			t.Errorf("%s: %v, may be called: %t", addr, err, ok)
		}
		if ok && lab.Check(a) != nil {
			t.Errorf("%s is forbidden where more is allowed", addr)
		}
	}
	if err := lab.Check(netip.MustParseAddr("127.0.0.1")); err != nil {
		t.Error(err)
	}
	if lab.Check(netip.MustParseAddr("169.254.169.254")) == nil || lab.Check(netip.MustParseAddr("::1")) == nil {
		t.Error("more is allowed than was said")
	}
}

// TestGuardOfUsersWebhooks: where users may add webhooks, the leader calls nothing of
// the site's own for them, however it is written, but what is listed.
func TestGuardOfUsersWebhooks(t *testing.T) {
	t.Parallel()
	g := Guard{PublicOnly: true, Allow: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}}
	for addr, ok := range map[string]bool{
		"93.184.216.34": true, "2606:2800:220:1::1": true, "10.1.2.3": true, "::ffff:10.1.2.3": true,
		"10.2.0.1": false, "172.16.0.1": false, "172.31.255.255": false, "172.32.0.1": true, "192.168.1.1": false, "100.64.0.1": false, "100.128.0.1": true,
		"fd12:3456::1": false, "fc00::1": false, "::ffff:192.168.1.1": false, "64:ff9b::a02:1": false, "2002:c0a8:101::1": false, "127.0.0.1": false, "169.254.169.254": false,
	} {
		if err := g.Check(netip.MustParseAddr(addr)); (err == nil) != ok {
			t.Errorf("%s: %v, may be called: %t", addr, err, ok)
		}
	}
}

func TestCheckURL(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"https://example.org": "", "http://example.org:8080/a?b=c": "", "https://[2001:db8::1]/x": "",
		"": "scheme", "example.org": "scheme", "ftp://example.org": "scheme", "file:///etc/passwd": "scheme", "gopher://x": "scheme",
		"https://": "no host", "https:///x": "no host", "https:x": "not an address", "https://a:b@example.org": "password", "https://example.org/#x": "fragment",
		"https://example.org/a b": "space", "https://example.org/\r\nX: y": "space", "https://exämple.org": "ASCII", "https://example.org/" + strings.Repeat("a", 2048): "bytes",
	} {
		err := CheckURL(url)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.40q: %v, want %q", url, err, want)
		}
	}
}

func FuzzCheckURL(f *testing.F) {
	for _, s := range []string{"https://example.org/x", "http://[::1%25eth0]:80/", "https://a@b", "//x", "https://\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if CheckURL(s) == nil && (strings.ContainsAny(s, "\r\n\x00 ") || !strings.HasPrefix(strings.ToLower(s), "http")) {
			t.Errorf("%q is taken", s)
		}
	})
}
