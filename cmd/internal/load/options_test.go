package load

import (
	"testing"
	"time"
)

// usual are options of which nothing is wrong.
func usual() options {
	return options{coordinators: 1, nodes: 100, gpus: 8, jobs: 1000, clients: 8, batch: 1, rest: time.Second, changes: 100}
}

func TestOptionsAreChecked(t *testing.T) {
	if o := usual(); o.check(1000) != nil {
		t.Fatal(o.check(1000))
	}
	for want, change := range map[string]func(*options){
		"--coordinators 2: must be 1, or 3, which survive the loss of one":                         func(o *options) { o.coordinators = 2 },
		"--nodes 0: must be 1 to 100000":                                                           func(o *options) { o.nodes = 0 },
		"--gpus 17: must be 1 to 16":                                                               func(o *options) { o.gpus = 17 },
		"--jobs -1: must be 0 to 10000000":                                                         func(o *options) { o.jobs = -1 },
		"--batch 1001: must be 1 to 1000":                                                          func(o *options) { o.batch = 1001 },
		"--running 2401: must be 0 to 2400: 800 GPUs take 3 jobs each; use more --nodes or --gpus": func(o *options) { o.running = 2401 },
		"--waiting 5: these jobs wait for whole nodes, and 1 of 800 GPUs would be free for them; use --running 800 or more": func(o *options) { o.waiting, o.running = 5, 799 },
		"--waiting 999201: must be 0 to 999200":                             func(o *options) { o.waiting, o.running = 999_201, 800 },
		"--rate -1: must be 0, as fast as it goes, to 100000 jobs a second": func(o *options) { o.rate = -1 },
		"--run 2h0m0s: must be 0s to 1h":                                    func(o *options) { o.run = 2 * time.Hour },
		"--rest 0s: must be 1s to 1h":                                       func(o *options) { o.rest = 0 },
		"--nodes 900: needs 1164 open files, but this process may have 1000; raise that with ulimit -n 1164": func(o *options) { o.nodes = 900 },
		"--nodes 100: needs 1164 open files, but this process may have 1000; raise that with ulimit -n 1164": func(o *options) { o.watchers = 800 },
	} {
		o := usual()
		change(&o)
		if err := o.check(1000); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestNumbersAreRoundedToThreeDigits(t *testing.T) {
	for want, v := range map[string]float64{"0": 0, "12346": 12345.6, "12.3": 12.34, "1.23": 1.234, "0.0123": 0.01234, "0.00001": 0.000012, "7": 7} {
		if got := text(v, ""); got != want {
			t.Errorf("%v is %s, want %s", v, got, want)
		}
	}
}
