// Command notice writes NOTICE: the modules that are linked into Berth's programs, and their
// licences in full, equal ones once. It lists what the Go tool links for the architectures that
// packages are built for, and fails on an unknown licence.
//
//	go run ./deploy/notice > NOTICE
package main

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	text, err := notice(".")
	if err != nil {
		fmt.Fprintln(os.Stderr, "notice:", err)
		os.Exit(1)
	}
	fmt.Print(text)
}

// architectures are those that packages are built for.
var architectures = []string{"amd64", "arm64"}

// module is a linked module, and the files with its legal notices.
type module struct {
	path, version string
	files         []string
}

// notice returns the text for the repository at root.
func notice(root string) (string, error) {
	mods := map[string]*module{}
	for _, arch := range architectures {
		if err := linked(root, arch, mods); err != nil {
			return "", err
		}
	}
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOROOT: %w", err)
	}
	std := &module{path: "Go's standard library", files: []string{filepath.Join(strings.TrimSpace(string(goroot)), "LICENSE")}}
	all := append(slices.Collect(maps.Values(mods)), std)
	slices.SortFunc(all, func(a, b *module) int { return cmp.Compare(a.path, b.path) })
	return render(all)
}

// linked adds the modules whose packages are linked into the programs on an architecture.
func linked(root, arch string, mods map[string]*module) error {
	mains, err := filepath.Glob(filepath.Join(root, "cmd", "*", "main.go"))
	if err != nil || len(mains) == 0 {
		return fmt.Errorf("no programs under cmd: %w", cmp.Or(err, fs.ErrNotExist))
	}
	args := []string{"list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Version}}\t{{.Dir}}\t{{$.Dir}}{{end}}{{end}}"}
	for _, m := range mains {
		args = append(args, "./cmd/"+filepath.Base(filepath.Dir(m)))
	}
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+arch, "CGO_ENABLED=1")
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("list the packages of cmd for %s: %w", arch, err)
	}
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimSpace(line), "\t")
		if len(f) != 4 {
			continue
		}
		m := mods[f[0]]
		if m == nil {
			m = &module{path: f[0], version: f[1]}
			mods[f[0]] = m
		}
		// Code that a module has adopted is in a directory with its own licence.
		for dir := f[3]; ; dir = filepath.Dir(dir) {
			if m.files, err = told(dir, m.files); err != nil {
				return err
			}
			if dir == f[2] {
				break
			}
		}
	}
	return nil
}

// told adds the files of a directory with legal notices for the code next to them.
func told(dir string, files []string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		path, low := filepath.Join(dir, e.Name()), strings.ToLower(e.Name())
		switch {
		case e.IsDir() && low == "licenses":
			if files, err = told(path, files); err != nil {
				return nil, err
			}
		case e.IsDir(), strings.HasSuffix(low, ".docs"), slices.Contains(files, path): // about a module's documentation, not its code
		case strings.HasPrefix(low, "license"), strings.HasPrefix(low, "licence"), strings.HasPrefix(low, "copying"), strings.HasPrefix(low, "notice"), low == "ftl.txt":
			files = append(files, path)
		}
	}
	return files, nil
}

// known identifies licences by words that must all occur in their text, more specific ones
// first.
var known = []struct {
	name  string
	words []string
}{
	{"Apache-2.0", []string{"apache license", "version 2.0"}},
	{"MPL-2.0", []string{"mozilla public license", "2.0"}},
	{"OFL-1.1", []string{"sil open font license"}},
	{"FTL or GPL-2.0", []string{"freetype license", "your choice of exactly one"}},
	{"BSD-3-Clause", []string{"redistribution and use in source and binary forms", "endorse or promote products"}},
	{"BSD-2-Clause", []string{"redistribution and use in source and binary forms"}},
	{"MIT", []string{"permission is hereby granted, free of charge"}},
	{"CC-BY-4.0", []string{"creative commons attribution 4.0"}},
}

// identify returns the names of the licences whose words occur in a text.
func identify(text string) []string {
	low := strings.ToLower(strings.Join(strings.Fields(text), " "))
	var names []string
	for _, k := range known {
		all := true
		for _, w := range k.words {
			all = all && strings.Contains(low, w)
		}
		if all && (k.name != "BSD-2-Clause" || !slices.Contains(names, "BSD-3-Clause")) {
			names = append(names, k.name)
		}
	}
	return names
}

// render returns NOTICE: one line per module, then each text once with the modules that it
// applies to.
func render(mods []*module) (string, error) {
	var list strings.Builder
	users := map[string][]string{} // of a text
	var texts []string
	for _, m := range mods {
		var names []string
		for _, file := range m.files {
			raw, err := os.ReadFile(file)
			if err != nil {
				return "", err
			}
			text := strings.TrimSpace(strings.ReplaceAll(string(raw), "\r\n", "\n"))
			if !slices.Contains(users[text], m.path) {
				if users[text] == nil {
					texts = append(texts, text)
				}
				users[text] = append(users[text], m.path)
			}
			for _, n := range identify(text) {
				if !slices.Contains(names, n) {
					names = append(names, n)
				}
			}
		}
		if len(names) == 0 {
			return "", fmt.Errorf("%s %s: none of its files %q holds a licence that deploy/notice knows: add it there, or do without the module: %w", m.path, m.version, m.files, fs.ErrNotExist)
		}
		slices.Sort(names)
		fmt.Fprintf(&list, "%s\n", strings.TrimSpace(fmt.Sprintf("%-66s %-40s %s", m.path, m.version, strings.Join(names, ", "))))
	}
	var b strings.Builder
	b.WriteString("Berth is under the Apache License 2.0, see LICENSE. Its programs hold code of the modules below.\n" +
		"The source of each is had by its path and version: go mod download PATH@VERSION.\n" +
		"make generate writes this file; deploy/notice says how.\n\n" + list.String())
	for _, text := range texts {
		fmt.Fprintf(&b, "\n%s\n%s:\n\n%s\n", strings.Repeat("=", 80), strings.Join(users[text], "\n"), text)
	}
	return b.String(), nil
}
