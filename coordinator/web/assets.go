package web

import (
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"path"
)

// static is everything that a browser loads: written by hand, and used as it is.
//
//go:embed static
var static embed.FS

// kinds are the file types; others are not served.
var kinds = map[string]string{".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

// asset serves a file of the page. Browsers revalidate each time: the next release
// may have other files.
func (s *Server) asset(w http.ResponseWriter, r *http.Request) {
	name := cmp.Or(r.PathValue("file"), "index.html")
	data, err := static.ReadFile("static/" + name)
	kind, known := kinds[path.Ext(name)]
	if err != nil || !known {
		http.NotFound(w, r)
		return
	}
	sum := sha256.Sum256(data)
	tag := `"` + hex.EncodeToString(sum[:8]) + `"`
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("ETag", tag)
	if r.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	send(w, r, kind, data)
}
