# Berth. `make help` lists what there is.

# Tools are run by version; nothing need be installed but Go, and what
# deploy/ci/install-test-deps.sh names.
STATICCHECK        := honnef.co/go/tools/cmd/staticcheck@v0.8.2
export PROTOC_GEN_GO      := v1.36.12
export PROTOC_GEN_GO_GRPC := v1.6.1

# Packages tested at once. The end-to-end tests run whole clusters; more at
# once makes them wait for each other.
P        ?= 2
FUZZTIME ?= 30s
# What property tests draw, and the order of the tests: fixed, so that the same
# tree always gives the same answer. `make hunt` draws anew each time.
SEED     ?= 1
CHECKS   ?= 1000
BENCH    ?= .
COUNT    ?= 10
GO       ?= go
# What soak runs, and how much of it: PART=0.1 is a tenth of the full form.
SOAK     ?= ^TestSoak
PART     ?= 1

# Where install puts things. The links by which the binary is Slurm's commands
# have a folder of their own: users put it before Slurm's in PATH, or after it.
PREFIX   ?= /usr/local
DESTDIR  ?=
LINKDIR  ?= $(PREFIX)/lib/berth/slurm
LINKS    := sbatch squeue scancel sinfo scontrol sacct seff sshare srun salloc

.DEFAULT_GOAL := help
.PHONY: help build install demo test hunt short e2e bench bench-slurm experiments fuzz soak lint generate check cover clean test-deps fmt vet tidy generate-check

help: ## list the targets
	@echo "targets:"
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-11s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

build: ## build bin/berth, with the version from git
	$(GO) build -trimpath -buildvcs=auto -o bin/berth ./cmd/berth

install: build ## install the binary, manual pages, completion and links (PREFIX=, DESTDIR=, LINKDIR=)
	install -D -m 0755 bin/berth $(DESTDIR)$(PREFIX)/bin/berth
	bin/berth reference --man $(DESTDIR)$(PREFIX)/share/man/man1
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions $(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DESTDIR)$(LINKDIR)
	bin/berth completion bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/berth
	bin/berth completion zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_berth
	set -e; for c in $(LINKS); do ln -sfn $(PREFIX)/bin/berth $(DESTDIR)$(LINKDIR)/$$c; done

demo: build ## show a whole cluster at work on this machine
	bin/berth demo

# Property tests take rapid's flags, which other packages do not know. The end
# to end tests take longest, so they begin first in their run.
PROPERTIES = $(shell grep -rl --include=*_test.go '"pgregory.net/rapid"' . | xargs -n1 dirname | sort -u)
OTHERS     = ./e2e $(filter-out ./e2e $(PROPERTIES),$(patsubst github.com/berth-scheduler/berth%,.%,$(shell $(GO) list ./...)))

test: test-deps ## run all tests with the race detector, end to end ones too
	@rc=0; \
	$(GO) test -race -shuffle=$(SEED) -p $(P) -timeout 20m $(OTHERS) || rc=1; \
	$(GO) test -race -shuffle=$(SEED) -p $(P) -timeout 20m $(PROPERTIES) -rapid.seed=$(SEED) || rc=1; \
	exit $$rc

hunt: ## draw CHECKS cases for each property, other ones each time
	$(GO) test -count=1 -shuffle=on -p $(P) -timeout 2h $(PROPERTIES) -rapid.checks=$(CHECKS)

short: ## run the tests that take seconds, without the race detector
	$(GO) test -short ./...

e2e: test-deps ## run only the end-to-end tests: real processes, kill -9
	$(GO) test -race -count=1 -v -timeout 20m ./e2e

bench: ## run benchmarks (BENCH=regexp COUNT=n) into bin/bench.txt, for benchstat
	@mkdir -p bin
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) -p 1 -timeout 2h ./... > bin/bench.txt || { cat bin/bench.txt; exit 1; }
	@cat bin/bench.txt
	@echo "written to bin/bench.txt"

bench-slurm: build ## do the same to Slurm and to Berth, in turns (needs slurm-wlm and munge)
	$(GO) test ./e2e -run '^$$' -bench '^BenchmarkBesideSlurm' -benchtime 40x -timeout 1h

experiments: build ## rebuild published evaluations from the traces in TRACES (QUICK=1: fewer seeds) into bin/experiments
	@test -n "$(TRACES)" || { echo "set TRACES to a folder with one subfolder a trace"; exit 2; }
	@mkdir -p bin/experiments
	@set -e; for x in yeung schedtune openb lucid muri orders gap hived; do \
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

lint: ## run staticcheck
	$(GO) run $(STATICCHECK) ./...

generate: ## regenerate the code of proto/ and docs/reference.md
	deploy/ci/generate.sh write

check: fmt vet tidy generate-check lint ## everything but the tests: format, vet, modules, generated code, lint

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
