package tlsconf

import (
	"crypto/tls"
	"errors"
	"strings"
	"testing"
)

func TestParseIdentity(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want Identity
	}{
		{"spiffe://hpc/coordinator/c1", Identity{"hpc", RoleCoordinator, "c1"}},
		{"spiffe://hpc.uni-x.de/agent/n17.rack_2", Identity{"hpc.uni-x.de", RoleAgent, "n17.rack_2"}},
		{"spiffe://1/gate/1", Identity{"1", RoleGate, "1"}},
	} {
		got, err := ParseIdentity(tc.in)
		if err != nil || got != tc.want {
			t.Errorf("ParseIdentity(%q) = %v, %v", tc.in, got, err)
		}
	}
	for name, in := range map[string]string{
		"empty":             "",
		"other scheme":      "https://hpc/agent/n1",
		"upper-case scheme": "SPIFFE://hpc/agent/n1",
		"no id":             "spiffe://hpc/agent",
		"empty id":          "spiffe://hpc/agent/",
		"trailing slash":    "spiffe://hpc/agent/n1/",
		"extra part":        "spiffe://hpc/agent/n1/x",
		"no cluster":        "spiffe:///agent/n1",
		"unknown role":      "spiffe://hpc/root/n1",
		"upper-case role":   "spiffe://hpc/Agent/n1",
		"port":              "spiffe://hpc:7070/agent/n1",
		"user":              "spiffe://me@hpc/agent/n1",
		"query":             "spiffe://hpc/agent/n1?a=b",
		"fragment":          "spiffe://hpc/agent/n1#x",
		"escape":            "spiffe://hpc/agent/n%31",
		"dot dot":           "spiffe://hpc/agent/..",
		"upper-case id":     "spiffe://hpc/agent/N1",
		"newline":           "spiffe://hpc/agent/n1\n",
		"NUL":               "spiffe://hpc/agent/n1\x00",
		"long id":           "spiffe://hpc/agent/" + strings.Repeat("n", 64),
		"not UTF-8":         "spiffe://hpc/agent/\xff",
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := ParseIdentity(in); !errors.Is(err, ErrBadIdentity) {
				t.Errorf("ParseIdentity(%q) = %v, %v, want ErrBadIdentity", in, got, err)
			}
		})
	}
}

func TestPeerIdentityWithoutTLS(t *testing.T) {
	if _, err := PeerIdentity(tls.ConnectionState{}); !errors.Is(err, ErrNoCertificate) {
		t.Errorf("got %v, want ErrNoCertificate", err)
	}
	if s := PeerSerial(tls.ConnectionState{}); s != "" {
		t.Errorf("serial %q, want none", s)
	}
}

// FuzzParseIdentity: what is accepted has one text form, and survives being
// put into a certificate's URL.
func FuzzParseIdentity(f *testing.F) {
	for _, s := range []string{
		"spiffe://hpc/agent/n1", "spiffe://hpc/coordinator/c1", "spiffe://a/gate/b", "spiffe://hpc//n1",
		"spiffe://hpc/agent/n1?x", "spiffe://%68pc/agent/n1", "spiffe://[::1]/agent/n1", "//hpc/agent/n1",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseIdentity(s)
		if err != nil {
			if !errors.Is(err, ErrBadIdentity) {
				t.Fatalf("%q: %v is no ErrBadIdentity", s, err)
			}
			return
		}
		if id.String() != s || id.uri().String() != s {
			t.Fatalf("%q came back as %q and %q", s, id, id.uri())
		}
		if id.Validate() != nil {
			t.Fatalf("%q: accepted and invalid", s)
		}
	})
}
