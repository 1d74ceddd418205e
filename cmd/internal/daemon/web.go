package daemon

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/berth-scheduler/berth/cmd/internal/config"
	"github.com/berth-scheduler/berth/cmd/internal/tlsconf"
	"github.com/berth-scheduler/berth/coordinator/web"
)

// webOf is the page for browsers on a listener, nil for none.
func webOf(cfg *config.Coordinator, src *tlsconf.Source, ln net.Listener) web.Config {
	if ln == nil {
		return web.Config{}
	}
	names, address := cfg.WebHosts()
	w := web.Config{Listener: ln, Names: names, Address: address}
	if cfg.WebPlain() {
		return w
	}
	var pair func() (*tls.Certificate, error)
	if cfg.TLS.WebCert != "" {
		pair = (&pairFile{cert: cfg.TLS.WebCert, key: cfg.TLS.WebKey}).read
	}
	w.TLS = tlsconf.BrowserConfig(src, pair)
	return w
}

// pairFile is a certificate and its key in files that others renew.
type pairFile struct {
	cert, key string

	mu   sync.Mutex
	have *tls.Certificate
	at   time.Time // of the file that it was read from
}

// read returns what stands in the files. While that cannot be read, as between the
// renewal of one and of the other, what was read last stays in use.
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
