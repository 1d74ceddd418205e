// Command zoogen writes the zoo's models as ONNX files without weights.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/berth-scheduler/berth/model/zoo"
)

func main() {
	out := flag.String("out", "model/zoo/onnx", "directory to write to; it is made when missing")
	flag.Parse()
	if err := write(*out); err != nil {
		fmt.Fprintln(os.Stderr, "zoogen:", err)
		os.Exit(1)
	}
}

func write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make output directory: %w", err)
	}
	for _, m := range zoo.Models() {
		if err := os.WriteFile(filepath.Join(dir, m.Name+".onnx"), m.ONNX(), 0o644); err != nil {
			return fmt.Errorf("write model: %w", err)
		}
	}
	return nil
}
