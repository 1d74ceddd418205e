# Berth. `make help` lists what there is.

# Tools are run by version; nothing need be installed but Go, and what
# deploy/ci/install-test-deps.sh names.
STATICCHECK        := honnef.co/go/tools/cmd/staticcheck@v0.8.2
export GOSEC       := github.com/securego/gosec/v2/cmd/gosec@v2.30.0
export GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0
export NFPM        := github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.0
export CYCLONEDX   := github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0
export PROTOC_GEN_GO      := v1.36.12
export PROTOC_GEN_GO_GRPC := v1.6.1

# Packages tested at once, of those under the race detector and of the others each: with
# more, two cores take longer, and up to twice the processor time. And how many tests of
# one package run at once, of those that may: they wait for elections, agents and jobs.
P        ?= 1
PARALLEL ?= 6
FUZZTIME ?= 30s
CHECKS   ?= 1000
BENCH    ?= .
COUNT    ?= 10
GO       ?= go
# Without folders' names in what is compiled, one cache serves programs, tests, checks
# and other clones.
export GOFLAGS := $(strip $(shell $(GO) env GOFLAGS) -trimpath)
# What soak runs, and how much of it: PART=0.1 is a tenth of the full form.
SOAK     ?= ^TestSoak
PART     ?= 1

# Where install puts things: all programs into one folder, since each finds the
# others beside itself. The links by which berth is Slurm's commands
# have a folder of their own: users put it before Slurm's in PATH, or after it.
PREFIX   ?= /usr/local
DESTDIR  ?=
LINKDIR  ?= $(PREFIX)/lib/berth/slurm
export LINKS
PROGRAMS := berth berthd berth-job berth-lab berth-top berth-sbatch berth-jq
LINKS    := sbatch squeue scancel sinfo scontrol sacct seff sshare srun salloc sacctmgr sattach sbcast scrontab sdiag sgather sprio sreport sstat strigger

.DEFAULT_GOAL := help
.PHONY: help build install packages packages-try site demo test hunt stress short e2e bench bench-guard bench-sides experiments fuzz soak mallory mutants lint vuln generate check cover clean test-deps fmt vet tidy generate-check

help: ## list the targets
	@echo "targets:"
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# What users wait for and what stands beside jobs is static and small: without C,
# without tables for debuggers (stack traces need none), without gRPC's pages of
# traces. The agent needs C to reach the NVIDIA driver.
BIN      := bin/
build: ## build bin/berth and the programs beside it, with the commit from git
	CGO_ENABLED=0 $(GO) build -buildvcs=auto -tags grpcnotrace -ldflags '-s -w' -o $(BIN) ./cmd/berth ./cmd/berth-job ./cmd/berth-top ./cmd/berth-sbatch ./cmd/berth-jq
	$(GO) build -buildvcs=auto -o $(BIN) ./cmd/berthd ./cmd/berth-lab

install: build ## install the programs, manual pages, completion and links (PREFIX=, DESTDIR=, LINKDIR=)
	for p in $(PROGRAMS); do install -D -m 0755 bin/$$p $(DESTDIR)$(PREFIX)/bin/$$p || exit; done
	bin/berth reference --man $(DESTDIR)$(PREFIX)/share/man/man1 --slurm-man $(DESTDIR)$(LINKDIR)/man/man1
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions $(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d $(DESTDIR)$(LINKDIR)
	bin/berth completion bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/berth
	bin/berth completion zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_berth
	bin/berth completion fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/berth.fish
	set -e; for c in $(LINKS); do ln -sfn $(PREFIX)/bin/berth $(DESTDIR)$(LINKDIR)/$$c; done
	ln -sfn $(PREFIX)/bin/berth-sbatch $(DESTDIR)$(LINKDIR)/sbatch

packages: ## build deb and rpm packages for amd64 and arm64 into bin/packages, and look at them (ARCHS=amd64)
	deploy/packages/build.sh $(ARCHS)
	BERTH_PACKAGES=bin/packages $(GO) test -count=1 ./deploy/packages

packages-try: ## install, upgrade, remove and purge them in a Debian of its own under .cache (needs root and debootstrap)
	deploy/packages/try.sh

site: ## make web pages of docs in bin/site (Debian: mkdocs)
	mkdocs build --quiet --strict --clean --config-file deploy/site/mkdocs.yml

demo: build ## show a whole cluster at work on this machine
	bin/berth demo

# Where goroutines meet, tests run under the race detector, several times as slow;
# elsewhere without it, and property tests draw three times as much (cluster/draws).
# Of the state machine those tests run twice that read it while it is written.
# No flag may stand here that switches Go's test cache off.
# At its end each process waits for reports of races, by default for a second:
# tests start hundreds.
export GORACE ?= atexit_sleep_ms=50
RACE   = ./agent/containerdrt ./coordinator ./agent/... ./coordinator/... ./cmd/internal/daemon ./cmd/internal/gate \
	./cmd/internal/tlsconf ./cmd/internal/doctor ./cmd/internal/sdnotify ./cmd/internal/cli/client ./cmd/internal/cli/enter \
	./cmd/internal/cli/sruncmd ./cmd/internal/cli/console
# These wait most of their time, for processes to start, fail and be missed: beside all others.
WAIT   = ./agent/faulttest
# Of RACE these take longest, and wait for half of it; those of LATE come after them. The
# others are many and short: compiling and linking them is most of their time.
LONG   = ./agent/containerdrt ./coordinator
LATE   = ./coordinator/raftnode ./coordinator/history ./coordinator/web/...
RACED  = $(filter-out $(shell $(GO) list $(WAIT) $(LONG) $(LATE)),$(shell $(GO) list $(RACE)))
PLAIN  = $(filter-out %/e2e $(shell $(GO) list $(WAIT) $(RACE)),$(shell $(GO) list ./...))
# Linking takes as much processor as the tests: no tables of symbols. All of
# vet is part of make check.
LIGHT  = '-ldflags=-s -w' -vet=off
# A third of their processor would be garbage collection, of small heaps.
LARGE  = export GOGC=400 GOMEMLIMIT=4GiB

# Four at once, and WAIT, keep two cores at work: two that wait for half of their time, one that
# computes, and one that compiles and links.
test: SHELL := bash
test: test-deps ## run all tests, end to end ones too, with the race detector where goroutines meet
	@mkdir -p bin; $(LARGE); { \
	these() { $(GO) test $(LIGHT) $(TESTFLAGS) -p $(P) -parallel $(PARALLEL) -timeout 40m "$$@"; }; \
	these ./e2e & waits=$$!; \
	{ these $(PLAIN); rc=$$?; these -race -run 'While|Waiters|WaitEnded' ./fsm && exit $$rc; } & plain=$$!; \
	{ these -race $(LONG); rc=$$?; these -race $(LATE) && exit $$rc; } & long=$$!; rc=0; \
	these -race $(WAIT) & faults=$$!; \
	these -race $(RACED) || rc=1; \
	for s in $$plain $$long $$faults $$waits; do wait $$s || rc=1; done; \
	exit $$rc; } 2>&1 | tee bin/test.log; rc=$${PIPESTATUS[0]}; \
	[ $$rc = 0 ] || { echo "what failed (the whole output: bin/test.log):"; \
	grep -E '^ *--- FAIL|^FAIL.|^panic:|^	*Test[A-Z].* \([0-9hms.]+\)$$|DATA RACE|^ *[a-z0-9_]+_test\.go:[0-9]+:' bin/test.log | head -n 100; }; \
	exit $$rc

hunt: ## draw CHECKS cases for each property, other ones each time (HUNT="./fsm ./scheduler" FOR=2m)
	deploy/ci/hunt.sh $(CHECKS) "$(FOR)" $(or $(HUNT),$(sort $(dir $(shell grep -rlE --include=*_test.go '^[[:space:]]"pgregory.net/rapid"$$' .))))

stress: test-deps ## run all tests three times beside twice as many busy loops as cores, as on another user's machine (PKGS=, TIMES=)
	deploy/ci/stress.sh $(or $(TIMES),3) $(PKGS)

short: ## run the tests that take seconds, without the race detector
	$(GO) test -short ./...

e2e: test-deps ## run only the end-to-end tests: real processes, kill -9
	$(GO) test -race -count=1 -v -timeout 20m ./e2e

bench: ## run benchmarks (BENCH=regexp COUNT=n) into bin/bench.txt, for benchstat
	@mkdir -p bin
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) -p 1 -timeout 2h ./... > bin/bench.txt || { cat bin/bench.txt; exit 1; }
	@cat bin/bench.txt
	@echo "written to bin/bench.txt"

bench-guard: ## run the tests that count work, not time: fail where an item costs more among ten times as many
	$(GO) test $(LIGHT) -count=1 -run '^TestWorkOf' $(sort $(dir $(shell grep -rl --include=*_test.go '^func TestWorkOf' .)))

bench-sides: build ## do the same to Slurm and to Berth, in turns, and write one table into bin/sides.md (needs slurm-wlm and munge)
	SIDES=$(CURDIR)/bin/sides.md $(GO) test ./e2e -run '^$$' -bench '^BenchmarkSides$$' -benchtime 1x -timeout 1h

experiments: build ## rebuild published evaluations from the traces in TRACES (QUICK=1: fewer seeds) into bin/experiments
	@test -n "$(TRACES)" || { echo "set TRACES to a folder with one subfolder a trace"; exit 2; }
	@mkdir -p bin/experiments
	@set -e; for x in yeung schedtune openb lucid muri orders gap hived ahead mig; do \
		echo "== $$x"; bin/berth sim experiment $$x --traces "$(TRACES)" $(if $(QUICK),--quick) --plot bin/experiments -o json > bin/experiments/$$x.json; \
	done

fuzz: ## run each fuzz target for FUZZTIME
	@set -e; for pkg in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u); do \
		for f in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
			echo "== $$pkg $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$pkg; \
		done; \
	done

soak: test-deps ## run the fault tests in full, for hours (SOAK=regexp PART=0.1)
	@mkdir -p bin
	@BERTH_SOAK=$(PART) nice $(GO) test -count=1 -p 1 -v -timeout 24h -run '$(SOAK)' \
		$$(grep -rl --include='*_test.go' '^func TestSoak' . | xargs -n1 dirname | sort -u) > bin/soak.txt 2>&1; \
	rc=$$?; grep -E '^ *(--- |ok|FAIL|panic)|soak:' bin/soak.txt; echo "written to bin/soak.txt"; exit $$rc

mallory: ## attack a cluster as one of its users beside twenty honest ones, and print how it fared (FOR=1m)
	@BERTH_MALLORY_FOR=$(or $(FOR),1m) $(GO) test ./e2e -count=1 -v -timeout 30m -run '^Test(Mallory|FloodWithoutCertificates)$$' | grep -E 'mallory:|^(---|ok|FAIL|panic)|_test.go'

mutants: ## plant bugs one by one and say which tests catch each (MUTANT=regexp)
	$(GO) run ./deploy/mutants -run '$(MUTANT)'

lint: ## run staticcheck and gosec, and see that the planted bugs still compile
	$(GO) run $(STATICCHECK) ./...
	deploy/ci/gosec.sh ./...
	$(GO) run ./deploy/mutants -check

vuln: ## look for known vulnerabilities, where their database can be reached (VULNDB=URL)
	deploy/ci/vuln.sh ./...

generate: ## regenerate the code of proto/, docs/reference.md and NOTICE
	deploy/ci/generate.sh write

check: test-deps fmt vet tidy generate-check lint vuln ## everything but the tests: format, vet, modules, generated code, lint, vulnerabilities

cover: ## show the coverage of each package by its own tests
	@mkdir -p bin
	$(GO) test -short -coverprofile bin/cover.out ./...
	$(GO) tool cover -func bin/cover.out | tail -1

clean: ## remove what was built
	rm -rf bin .cache

test-deps:
	@deploy/ci/install-test-deps.sh

fmt:
	@bad=$$(gofmt -l .); if [ -n "$$bad" ]; then echo "not formatted, run gofmt -w:"; echo "$$bad"; exit 1; fi

vet:
	$(GO) vet ./...

tidy:
	$(GO) mod tidy -diff

generate-check:
	deploy/ci/generate.sh check
