package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestNoticeIsCurrent: whoever adds a module, or takes a later version, says so in NOTICE.
func TestNoticeIsCurrent(t *testing.T) {
	want, err := notice("../..")
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile("../../NOTICE")
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != want {
		t.Error("NOTICE is not what the programs are linked with; run: make generate")
	}
	for _, linked := range []string{"github.com/hashicorp/raft ", "Go's standard library", "github.com/NVIDIA/go-nvml"} {
		if !strings.Contains(want, "\n"+linked) {
			t.Errorf("NOTICE lacks %s", linked)
		}
	}
	if strings.Contains(want, "pgregory.net/rapid") {
		t.Error("NOTICE has a module that only tests use")
	}
}

func TestIdentify(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
	}{
		{"Apache License\n   Version 2.0, January 2004", []string{"Apache-2.0"}},
		{"Redistribution and use in source and\nbinary forms, with or without", []string{"BSD-2-Clause"}},
		{"Redistribution and use in source and binary forms … used to\nendorse or promote products", []string{"BSD-3-Clause"}},
		{"GNU Affero General Public License", nil},
	} {
		if got := identify(c.text); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.text, got, c.want)
		}
	}
}

// TestUnknownLicence: a module whose licence nobody looked at fails, and is named.
func TestUnknownLicence(t *testing.T) {
	file := filepath.Join(t.TempDir(), "LICENSE")
	if err := os.WriteFile(file, []byte("All rights reserved."), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := render([]*module{{path: "example.org/closed", version: "v1.0.0", files: []string{file}}})
	if err == nil || !strings.Contains(err.Error(), "example.org/closed v1.0.0") {
		t.Errorf("a licence that is not known: %v", err)
	}
}
