// Command zoogen writes the zoo's models as ONNX files without weights.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/berth-scheduler/berth/model/zoo"
)

func main() {
	out := flag.String("out", "model/zoo/onnx", "directory to write to; it is made when missing")
	flag.Parse()
	if err := zoo.Write(*out); err != nil {
		fmt.Fprintln(os.Stderr, "zoogen:", err)
		os.Exit(1)
	}
}
