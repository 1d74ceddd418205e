// Command berth-job runs next to jobs: agents start it, and mount it into
// containers. It is not meant to be typed.
package main

import (
	"fmt"
	"os"

	"github.com/berth-scheduler/berth/agent/inside"
	"github.com/berth-scheduler/berth/cmd/internal/build"
)

func main() {
	if code, known := inside.Main(os.Args, os.Stdin, os.Stdout, os.Stderr); known {
		os.Exit(code)
	}
	if len(os.Args) == 2 && os.Args[1] == "version" {
		fmt.Println("berth-job", build.Info())
		return
	}
	fmt.Fprintln(os.Stderr, "berth-job: it is started by Berth's agent beside each job; what users type is berth")
	os.Exit(2)
}
