package config_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/cmd/internal/config"
)

// TestSamples: the samples that are shipped load without a warning, and
// mention every setting there is.
func TestSamples(t *testing.T) {
	for name, load := range map[string]func(path string, out *bytes.Buffer) ([]string, error){
		"coordinator": func(path string, out *bytes.Buffer) ([]string, error) {
			l, err := config.LoadCoordinator(config.Sources{Path: path})
			if err != nil {
				return nil, err
			}
			return l.Config.Warnings(), l.Print(out)
		},
		"agent": func(path string, out *bytes.Buffer) ([]string, error) {
			l, err := config.LoadAgent(config.Sources{Path: path})
			if err != nil {
				return nil, err
			}
			return l.Config.Warnings(), l.Print(out)
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := "../../../deploy/" + name + ".yaml"
			var printed bytes.Buffer
			warnings, err := load(path, &printed)
			if err != nil || len(warnings) != 0 {
				t.Fatalf("%v, warnings %q", err, warnings)
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSpace(printed.String()), "\n")[1:]
			for _, line := range lines {
				key := strings.Fields(line)[0]
				leaf := key[strings.LastIndexByte(key, '.')+1:]
				if !strings.Contains(string(text), leaf+":") {
					t.Errorf("the sample does not mention %s", key)
				}
			}
			if len(lines) < 20 {
				t.Errorf("only %d settings were printed", len(lines))
			}
		})
	}
}
