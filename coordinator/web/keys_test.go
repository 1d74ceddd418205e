package web_test

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
)

// unnamed are what the keyboard reaches, and tables, that Chromium's accessibility tree
// has no name for.
const unnamed = `[...document.querySelectorAll('a[href],button,input,select,main [tabindex],table,svg[role],th')].filter((e) => e.checkVisibility() && !e.computedName && !(e.tagName === 'TH' && e.textContent.trim())).map((e) => e.outerHTML.slice(0, 80)).join('\n')`

// roles are what the accessibility tree makes of the rows of the first table.
const roles = `[...new Set(['table', 'tbody tr', 'tbody td'].map((s) => document.querySelector('main ' + s)).map((e) => e ? e.computedRole : 'none'))].join(' ')`

// weak are letters, those in heat maps of every shade included, that stand out less than
// WCAG asks for.
const weak = `(() => { const out = [], of = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (!/, 0\)$|transparent/.test(c)) return c; } return 'rgb(255, 255, 255)'; };
	document.querySelector('main').append(...['u0', 'u1', 'u2', 'u3', 'u4'].map((u) => { const e = document.createElement('a'); e.className = 'cell shade ' + u; e.textContent = '3'; return e; }));
	for (const e of document.querySelectorAll('header *, main *')) if ([...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) { const c = ` + contrast + `(getComputedStyle(e).color, of(e)); if (c < 4.5) out.push(e.className + ' ' + e.textContent.slice(0, 20) + ' ' + c.toFixed(1)); }
	document.querySelectorAll('.shade').forEach((e) => e.remove());
	return out.join('; '); })()`

// TestByKeysAlone: the first key leads past the heading on every page and to no other page;
// who stands at a row of a list that is drawn anew stays there; everything has a name, tables
// are tables for a screen reader on a phone, too, no page is wider than it, and letters stand
// out, by day and by night.
func TestByKeysAlone(t *testing.T) {
	t.Parallel()
	for name, scheme := range map[string]int{"light": light, "dark": dark} {
		t.Run(name, func(t *testing.T) {
			b := newBrowser(t, scheme)
			c := coordtest.Start(t, coordtest.Options{N: 1, Web: true})
			c.Leader()
			for _, id := range []string{"n1", "n2", "n3"} {
				c.Agent(0, id, "b", coordtest.T4("GPU-"+id), coordtest.T4("GPU-"+id+"b"))
			}
			for range 4 {
				submit(t, c.Dial(0, "gate", "g"), alice, spec("a-very-long-name-that-nothing-breaks-"+strings.Repeat("x", 20)))
			}
			base := "http://" + c.WebAddr(0)
			b.open(link(t, c, 0, alice))
			b.says("Overview")
			b.until("document.querySelectorAll('.cell').length > 3")
			if n := b.text("document.querySelectorAll('.cards .cell:not([tabindex=\"-1\"])').length"); n != "0" {
				t.Errorf("%s cards are stops of the Tab key beside their nodes", n)
			}
			for _, page := range []string{"overview", "jobs", "job/1", "services", "nodes", "nodes/n1", "accounts", "whatif", "admin"} {
				b.open(base + "/#/" + page)
				b.until("document.querySelector('main h1') && (document.querySelector('main table, main p'))")
				b.until("document.activeElement.id === 'main'")
				if got := b.text(weak); got != "" {
					t.Errorf("%s: letters are hard to see: %s", page, got)
				}
				if scheme == dark {
					continue // the rest goes by the same page
				}
				if n := b.text("document.querySelectorAll('h1').length"); n != "1" {
					t.Errorf("%s: %s headings of the first order", page, n)
				}
				if got := b.text(unnamed); got != "" {
					t.Errorf("%s: without a name:\n%s", page, got)
				}
				b.run(chromedp.EmulateViewport(390, 844))
				if got := b.text("document.documentElement.scrollWidth"); got != "390" {
					t.Errorf("%s: on a phone it is %s wide", page, got)
				}
				if got := b.text(roles); got != "table row cell" && got != "none" {
					t.Errorf("%s: on a phone a table is %s", page, got)
				}
				b.run(chromedp.EmulateViewport(1280, 900), chromedp.Evaluate[chromedp.Void]("document.querySelector('.skip').focus()"), chromedp.KeyEvent(kb.Enter))
				b.until("document.activeElement.id === 'main'")
				if hash := b.text("location.hash"); hash != "#/"+page {
					t.Errorf("%s: the first key led to %s", page, hash)
				}
			}
			if scheme == dark {
				return
			}

			// The list of nodes is drawn anew every 5 s.
			b.open(base + "/#/nodes")
			b.until("document.querySelectorAll('tbody a').length === 3")
			b.run(chromedp.Evaluate[chromedp.Void]("window.was = document.querySelectorAll('tbody a')[1]; was.focus()"))
			b.until("!was.isConnected")
			if at := b.text("document.activeElement.textContent"); at != "n2" {
				t.Errorf("after the list was drawn anew the focus is at %q, want n2", at)
			}
			b.open(base + "/#/jobs")
			b.until("document.querySelectorAll('tbody a').length === 4")
			b.run(chromedp.Evaluate[chromedp.Void]("window.was = document.querySelectorAll('tbody a')[2]; was.focus()"))
			name := b.text("was.textContent")
			submit(t, c.Dial(0, "gate", "g"), alice, spec("one-more"))
			b.until("!was.isConnected")
			if at := b.text("document.activeElement.textContent"); at != name {
				t.Errorf("after a job came the focus is at %q, want job %s", at, name)
			}
			if sorted := b.text("[...document.querySelectorAll('th[aria-sort]')].map((e) => e.textContent.trim() + e.getAttribute('aria-sort')).join()"); sorted != "State ▼ascending" {
				t.Errorf("sorted by %q", sorted)
			}
		})
	}
}
