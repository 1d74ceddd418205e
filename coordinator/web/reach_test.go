package web_test

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// contrast is that of two colours as WCAG 2 counts it, in JavaScript.
const contrast = `((a, b) => {
	const light = (c) => { const [r, g, bl] = c.match(/[\d.]+/g).slice(0, 3).map((v) => v / 255).map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * bl; };
	const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
	return (x + 0.05) / (y + 0.05);
})`

// TestServicesInTheDark: the page shows services, and can be used without a mouse and where
// people want dark pages, with letters that stand out as WCAG asks for (4.5 to 1).
func TestServicesInTheDark(t *testing.T) {
	b := newBrowser(t, dark)
	c := coordtest.Start(t, coordtest.Options{N: 1, Web: true})
	c.Leader()
	s := spec("chat")
	s.Array, s.Service = "0-3%2", &apiv1.Service{Name: "chat", Replicas: 2, Least: 2, Most: 4, Port: "http", Every: durationpb.New(2e9), Fails: 3, StartWithin: durationpb.New(60e9), Drain: durationpb.New(1e9)}
	submit(t, c.Dial(0, "gate", "g"), alice, s)
	base := "http://" + c.WebAddr(0)
	b.open(link(t, c, 0, alice))
	b.says("Overview")
	b.open(base + "/#/services")
	b.says("chat")
	b.says("0 of 2 ready")
	if got := b.text(weak); got != "" {
		t.Errorf("letters are hard to see: %s", got)
	}
	if dark := b.text("matchMedia('(prefers-color-scheme: dark)').matches && getComputedStyle(document.body).backgroundColor"); dark == "false" || dark == "rgb(255, 255, 255)" {
		t.Errorf("the page is not dark: %s", dark)
	}
	// By keys alone: the first one leads past the heading, the next ones to the pages.
	b.open(base + "/#/overview")
	b.says("Overview")
	b.run(chromedp.Evaluate[chromedp.Void]("document.activeElement.blur(); document.querySelector('.skip').focus()"))
	b.run(chromedp.KeyEvent(kb.Enter))
	b.until("document.activeElement.id === 'main'")
	b.run(chromedp.Evaluate[chromedp.Void]("document.querySelector('.skip').focus()"))
	for range 3 {
		b.run(chromedp.KeyEvent(kb.Tab))
	}
	if at := b.text("document.activeElement.textContent + ' ' + getComputedStyle(document.activeElement).outlineStyle"); at != "Services solid" {
		t.Errorf("after three tabs the focus is at %q, want the third page with a line around it", at)
	}
	b.run(chromedp.KeyEvent(kb.Enter))
	b.says("chat")
	if hash := b.text("location.hash"); hash != "#/services" {
		t.Errorf("the key led to %s", hash)
	}
	if title := b.text("document.title"); !strings.HasPrefix(title, "Services") {
		t.Errorf("the title is %q", title)
	}
}
