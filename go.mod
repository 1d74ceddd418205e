module github.com/berth-scheduler/berth

go 1.26.6

require (
	charm.land/bubbletea/v2 v2.0.10 // the live screen of berth top
	github.com/NVIDIA/go-nvml v0.13.0-1 // NVIDIA's own binding of NVML: inventory, usage and health of cards
	github.com/charmbracelet/x/vt v0.1.0 // tests, and the picture of berth top: a terminal that shows what was written to it
	github.com/chromedp/chromedp v0.23.0 // tests: the web page in a real browser
	github.com/containerd/containerd/v2 v2.4.2 // jobs run in containerd; its client
	github.com/containerd/errdefs v1.0.0 // the classes of containerd's errors
	github.com/google/go-cmp v0.7.0 // tests: differences that can be read
	github.com/hashicorp/go-hclog v1.6.2 // the logger that raft takes; ours hands on to slog
	github.com/hashicorp/memberlist v0.6.0 // gossip: who is there, how full the cards are
	github.com/hashicorp/raft v1.7.3 // consensus of the coordinators
	github.com/hashicorp/raft-boltdb/v2 v2.3.1 // raft's log on disk
	github.com/itchyny/gojq v0.12.20 // --jq of the commands
	github.com/opencontainers/runtime-spec v1.3.0 // the specification of a container that runc starts
	github.com/prometheus/client_golang v1.24.1 // metrics
	github.com/spf13/cobra v1.10.2 // the tree of commands
	github.com/spf13/pflag v1.0.10 // flags as cobra has them, for Slurm's grammar
	go.etcd.io/bbolt v1.5.0 // reads and mends raft's log while a coordinator is stopped
	go.uber.org/goleak v1.3.0 // tests: no goroutine is left behind
	go.yaml.in/yaml/v3 v3.0.5 // configuration, strict
	golang.org/x/net v0.60.0 // HPACK, of the commands' own client
	golang.org/x/sync v0.23.0 // groups of goroutines that end together
	golang.org/x/sys v0.48.0 // system calls that package syscall lacks
	golang.org/x/time v0.16.0 // token buckets that bound what a user may ask
	gonum.org/v1/plot v0.16.0 // charts of simulations and evaluations
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260825221802-da73d73af1c5 // error details in gRPC statuses
	google.golang.org/grpc v1.85.0 // all that daemons and commands say to each other
	google.golang.org/protobuf v1.36.12 // messages, and the log's entries
	pgregory.net/rapid v1.3.0 // tests: properties over random cases
	tags.cncf.io/container-device-interface v1.1.1 // which devices and libraries a card needs in a container
	tags.cncf.io/container-device-interface/specs-go v1.1.1 // the form of those descriptions
)

require (
	codeberg.org/go-fonts/liberation v0.5.0 // indirect
	codeberg.org/go-latex/latex v0.1.0 // indirect
	codeberg.org/go-pdf/fpdf v0.10.0 // indirect
	git.sr.ht/~sbinet/gg v0.6.0 // indirect
	github.com/Microsoft/go-winio v0.6.3-0.20251027160822-ad3df93bed29 // indirect
	github.com/Microsoft/hcsshim v0.15.0-rc.4 // indirect
	github.com/ajstarks/svgo v0.0.0-20211024235047-1546f124cd8b // indirect
	github.com/armon/go-metrics v0.4.1 // indirect
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/boltdb/bolt v1.3.1 // indirect
	github.com/campoy/embedmd v1.0.0 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/charmbracelet/colorprofile v0.4.3 // indirect
	github.com/charmbracelet/ultraviolet v0.0.0-20260703014108-f5a850f9c2b7 // indirect
	github.com/charmbracelet/x/ansi v0.11.7 // indirect
	github.com/charmbracelet/x/exp/ordered v0.1.0 // indirect
	github.com/charmbracelet/x/term v0.2.2 // indirect
	github.com/charmbracelet/x/termios v0.1.1 // indirect
	github.com/charmbracelet/x/windows v0.2.2 // indirect
	github.com/chromedp/cdproto v0.159.0 // indirect
	github.com/clipperhouse/displaywidth v0.11.0 // indirect
	github.com/clipperhouse/uax29/v2 v2.7.0 // indirect
	github.com/containerd/cgroups/v3 v3.1.3 // indirect
	github.com/containerd/containerd/api v1.12.0 // indirect
	github.com/containerd/continuity v0.5.0 // indirect
	github.com/containerd/errdefs/pkg v0.3.0 // indirect
	github.com/containerd/fifo v1.1.0 // indirect
	github.com/containerd/log v0.2.0 // indirect
	github.com/containerd/log/otel v0.1.0 // indirect
	github.com/containerd/platforms v1.0.0-rc.5 // indirect
	github.com/containerd/plugin v1.1.0 // indirect
	github.com/containerd/ttrpc v1.2.9 // indirect
	github.com/containerd/typeurl/v2 v2.3.0 // indirect
	github.com/distribution/reference v0.6.0 // indirect
	github.com/fatih/color v1.13.0 // indirect
	github.com/felixge/httpsnoop v1.1.0 // indirect
	github.com/fsnotify/fsnotify v1.10.1 // indirect
	github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
	github.com/go-logr/logr v1.4.4 // indirect
	github.com/go-logr/stdr v1.2.2 // indirect
	github.com/golang/freetype v0.0.0-20170609003504-e2365dfdc4a0 // indirect
	github.com/google/btree v1.1.3 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/hashicorp/errwrap v1.1.0 // indirect
	github.com/hashicorp/go-immutable-radix v1.3.1 // indirect
	github.com/hashicorp/go-metrics v0.6.0 // indirect
	github.com/hashicorp/go-msgpack/v2 v2.1.5 // indirect
	github.com/hashicorp/go-multierror v1.1.1 // indirect
	github.com/hashicorp/go-sockaddr v1.0.7 // indirect
	github.com/hashicorp/golang-lru v0.5.0 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/itchyny/timefmt-go v0.1.9 // indirect
	github.com/klauspost/compress v1.20.0 // indirect
	github.com/lucasb-eyer/go-colorful v1.4.0 // indirect
	github.com/mattn/go-colorable v0.1.12 // indirect
	github.com/mattn/go-isatty v0.0.24 // indirect
	github.com/mattn/go-runewidth v0.0.31 // indirect
	github.com/miekg/dns v1.1.72 // indirect
	github.com/moby/locker v1.0.1 // indirect
	github.com/moby/sys/mountinfo v0.7.2 // indirect
	github.com/moby/sys/signal v0.7.1 // indirect
	github.com/moby/sys/user v0.4.1 // indirect
	github.com/moby/sys/userns v0.2.1 // indirect
	github.com/muesli/cancelreader v0.2.2 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/opencontainers/go-digest v1.0.0 // indirect
	github.com/opencontainers/image-spec v1.1.1 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
	github.com/prometheus/client_model v0.6.2 // indirect
	github.com/prometheus/common v0.70.1 // indirect
	github.com/prometheus/procfs v0.21.1 // indirect
	github.com/rivo/uniseg v0.4.7 // indirect
	github.com/sean-/seed v0.0.0-20170313163322-e2103e2c3529 // indirect
	github.com/sirupsen/logrus v1.10.2 // indirect
	github.com/xo/terminfo v0.0.0-20220910002029-abceb7e1c41e // indirect
	go.opentelemetry.io/auto/sdk v1.2.1 // indirect
	go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp v0.71.0 // indirect
	go.opentelemetry.io/otel v1.46.0 // indirect
	go.opentelemetry.io/otel/metric v1.46.0 // indirect
	go.opentelemetry.io/otel/sdk v1.46.0 // indirect
	go.opentelemetry.io/otel/trace v1.46.0 // indirect
	golang.org/x/image v0.25.0 // indirect
	golang.org/x/mod v0.41.0 // indirect
	golang.org/x/text v0.42.0 // indirect
	golang.org/x/tools v0.49.0 // indirect
)
