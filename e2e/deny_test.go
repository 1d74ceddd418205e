package e2e

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
)

// TestRevokedCertificate: an agent whose certificate is revoked, by its name or its
// number, is cut off in the middle of its session and cannot come back, until it
// is allowed again.
func TestRevokedCertificate(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--nodes", "1x1xT4")
	state := func() string {
		var nodes []struct{ State string }
		c.unmarshal(c.run("node", "list", "-o", "json"), &nodes)
		return nodes[0].State
	}
	data, err := os.ReadFile(filepath.Join(c.dir, "n1", "tls", "daemon.crt"))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(data)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if r := c.runAs(alice, "deny", "node", "n1"); r.code == 0 {
		t.Error("a user revoked a certificate")
	}
	for _, whose := range [][]string{{"node", "n1"}, {"serial", cert.SerialNumber.Text(16)}} {
		c.eventually("its session", func() bool { return state() == "ready" })
		c.run(append([]string{"deny"}, whose...)...)
		c.eventually("its end", func() bool { return state() == "unreachable" })
		c.kill(c.daemonPID("agent", "n1"))
		c.restart("agent", "n1")
		id := c.submit("-D", "/tmp", "-o", "/dev/null", "--", "true")
		if got := c.show(id).State; got != "PENDING" && got != "QUEUED" {
			t.Errorf("a job is %s beside no node", got)
		}
		c.run(append([]string{"allow"}, whose...)...)
		c.await(id, "COMPLETED")
	}
}
