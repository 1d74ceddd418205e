package main

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/charmbracelet/x/vt"
)

// drawn is what a small terminal shows of what a program writes, as SVG that is known to
// be well-formed.
func drawn(t *testing.T, title, written string) string {
	t.Helper()
	screen := vt.NewEmulator(20, 3)
	if _, err := screen.WriteString(written); err != nil {
		t.Fatal(err)
	}
	svg := string(draw(cells(screen), title))
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := d.Token(); err == io.EOF {
			return svg
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
	}
}

// TestDraw: what is written on a terminal, and what the picture has for it.
func TestDraw(t *testing.T) {
	t.Parallel()
	text := func(column, width int, style, words string) string {
		return fmt.Sprintf(`<text x="%s" y="31.5" textLength="%s" lengthAdjust="spacingAndGlyphs"%s>%s</text>`, px(left(column)), px(cellWidth*float64(width)), style, words)
	}
	rect := func(column int, y string, width float64, height, style string) string {
		return fmt.Sprintf(`<rect x="%s" y="%s" width="%s" height="%s"%s/>`, px(left(column)), y, px(cellWidth*width), height, style)
	}
	for name, c := range map[string]struct {
		written string
		want    []string
	}{
		"columns stay where they are": {"a b   c", []string{text(0, 3, "", "a b"), text(6, 1, "", "c")}},
		"a colour by number":          {"x \x1b[31mred\x1b[m y", []string{text(0, 1, "", "x"), text(2, 3, ` fill="#f0716b"`, "red"), text(6, 1, "", "y")}},
		"a colour of its own":         {"\x1b[38;2;1;2;255mblue", []string{text(0, 4, ` fill="#0102ff"`, "blue")}},
		"weights":                     {"\x1b[1mb\x1b[m\x1b[2mf\x1b[m\x1b[3mi", []string{text(0, 1, ` font-weight="bold"`, "b"), text(1, 1, ` opacity="0.6"`, "f"), text(2, 1, ` font-style="italic"`, "i")}},
		"reversed":                    {"\x1b[7m ab ", []string{rect(0, "18", 4, "18", ` fill="`+ink+`"`), text(1, 2, ` fill="`+paper+`"`, "ab")}},
		"a ground":                    {"\x1b[42m  ", []string{rect(0, "18", 2, "18", ` fill="#7fc678"`)}},
		"wide characters":             {"a模型b", []string{text(0, 1, "", "a"), text(1, 2, "", "模"), text(3, 2, "", "型"), text(5, 1, "", "b")}},
		"bars join":                   {"\x1b[36m███\x1b[m▒▒", []string{rect(0, "18", 3, "18", ` fill="#56c2cf"`), rect(3, "18", 2, "18", ` fill-opacity="0.5"`)}},
		"curves":                      {"▂▄", []string{rect(0, "31.5", 1, "4.5", ""), rect(1, "27", 1, "9", "")}},
		"lines":                       {"──", []string{rect(0, "27", 2, "1", "")}},
	} {
		svg := drawn(t, "a title", c.written)
		for _, want := range c.want {
			if !strings.Contains(svg, want) {
				t.Errorf("%s: no %s in\n%s", name, want, svg)
			}
		}
	}
}

// TestDrawSafely: what a program shows is text in the picture, and the picture has its
// title; what is concealed and what is blank is not there.
func TestDrawSafely(t *testing.T) {
	t.Parallel()
	svg := drawn(t, "jobs & <GPUs>", "<script>&\"'\r\n\x1b[8msecret")
	for _, want := range []string{`<title id="title">jobs &amp; &lt;GPUs&gt;</title>`, "&lt;script&gt;&amp;&#34;&#39;"} {
		if !strings.Contains(svg, want) {
			t.Errorf("no %s in\n%s", want, svg)
		}
	}
	if strings.Contains(svg, "<script") || strings.Contains(svg, "secret") || strings.Count(svg, "<text") != 1 {
		t.Errorf("more than is shown:\n%s", svg)
	}
}
