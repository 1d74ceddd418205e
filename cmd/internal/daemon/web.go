package daemon

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/config"
	"github.com/berth-scheduler/berth/cmd/internal/safefile"
	"github.com/berth-scheduler/berth/cmd/internal/tlsconf"
	"github.com/berth-scheduler/berth/cmd/internal/whatif"
	"github.com/berth-scheduler/berth/coordinator/web"
	"github.com/berth-scheduler/berth/coordinator/web/session"
)

// webOf returns the web page's configuration on a listener, nil for none.
func webOf(cfg *config.Coordinator, src *tlsconf.Source, ln net.Listener) (web.Config, error) {
	if ln == nil {
		return web.Config{}, nil
	}
	names, address := cfg.WebHosts()
	proxy, err := proxyOf(&cfg.Listen.WebProxy, cluster.UID(cfg.Users.MinUID))
	w := web.Config{Listener: ln, Names: names, Address: address, Proxy: proxy, Simulate: whatif.Simulate}
	if cfg.WebPlain() || err != nil {
		return w, err
	}
	var pair func() (*tls.Certificate, error)
	if cfg.TLS.WebCert != "" {
		pair = (&pairFile{cert: cfg.TLS.WebCert, key: cfg.TLS.WebKey}).read
	}
	w.TLS = tlsconf.BrowserConfig(src, pair)
	return w, nil
}

// proxyOf returns the site's proxy in front of the page, nil for none. System
// accounts, with uids below least, are let in by links alone.
func proxyOf(p *config.WebProxy, least cluster.UID) (*web.Proxy, error) {
	if p.Header == "" {
		return nil, nil
	}
	secret, err := safefile.ReadSecret(p.Secret, 4096)
	if err != nil {
		return nil, fmt.Errorf("listen.web_proxy.secret: %w", err)
	}
	text := strings.TrimSpace(string(secret))
	if len(text) < 16 {
		return nil, fmt.Errorf("listen.web_proxy.secret: %s has %d characters, want 16 or more, such as from openssl rand -base64 32", p.Secret, len(text))
	}
	from, err := p.Networks()
	if err != nil {
		return nil, fmt.Errorf("listen.web_proxy.from: %w", err)
	}
	return &web.Proxy{Header: p.Header, From: from, Secret: text, User: func(name string) (session.User, error) {
		u, err := user.Lookup(name)
		if err != nil {
			return session.User{}, cluster.Errorf(cluster.CodeDenied, "the proxy names user %.100q, who is not known on this machine", name)
		}
		uid, uerr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gerr := strconv.ParseUint(u.Gid, 10, 32)
		if uerr != nil || gerr != nil || cluster.UID(uid) < max(least, 1) {
			return session.User{}, cluster.Errorf(cluster.CodeDenied, "the proxy names user %.100q, a system account (users.min_uid)", name)
		}
		return session.User{UID: cluster.UID(uid), GID: uint32(gid)}, nil
	}}, nil
}

// pairFile is a certificate and its key in files that others renew.
type pairFile struct {
	cert, key string

	mu   sync.Mutex
	have *tls.Certificate
	at   time.Time // of the file when it was read
}

// read returns the content of the files. While they cannot be read, as
// between the renewals of the two, the last content stays in use.
func (p *pairFile) read() (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	st, err := os.Stat(p.cert)
	if err == nil && (p.have == nil || !st.ModTime().Equal(p.at)) {
		var c tls.Certificate
		if c, err = tls.LoadX509KeyPair(p.cert, p.key); err == nil {
			p.have, p.at = &c, st.ModTime()
		}
	}
	if p.have == nil {
		return nil, fmt.Errorf("tls.web_cert: %w", err)
	}
	return p.have, nil
}
