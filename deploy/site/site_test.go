// Package site makes web pages of docs.
package site

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPagesAreListed: every page is in the index and on the site.
func TestPagesAreListed(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) < 30 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	index, nav := read(t, "../../docs/README.md"), read(t, "mkdocs.yml")
	for _, p := range pages {
		name := filepath.Base(p)
		if name != "README.md" && !strings.Contains(index, "]("+name+")") {
			t.Errorf("docs/README.md has no link to %s", name)
		}
		if !strings.Contains(nav, ": "+name+"\n") {
			t.Errorf("mkdocs.yml has no %s", name)
		}
	}
}

var (
	links   = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	fenced  = regexp.MustCompile("(?ms)^```.*?^```$")
	dropped = regexp.MustCompile("[^a-z0-9 _-]")
)

// TestLinksLead: what pages link to is there, the heading too.
func TestLinksLead(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range append(files, "../../README.md", "../../deploy/README.md", "../../CONTRIBUTING.md", "../../SECURITY.md") {
		for _, m := range links.FindAllStringSubmatch(fenced.ReplaceAllString(read(t, f), ""), -1) {
			to, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
				continue
			}
			target := f
			if to != "" {
				target = filepath.Join(filepath.Dir(f), to)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", f, m[1], err)
			} else if anchor != "" && strings.HasSuffix(target, ".md") && !hasHeading(read(t, target), anchor) {
				t.Errorf("%s links to %s, which has no such heading", f, m[1])
			}
		}
	}
}

// hasHeading reports whether a page has a heading of an anchor as GitHub makes it.
func hasHeading(text, anchor string) bool {
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		if strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-") == anchor {
			return true
		}
	}
	return false
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
