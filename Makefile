# make help lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VERSION       ?= $(shell git describe --tags --always --dirty 2>/dev/null | sed 's/^v//' | grep . || echo dev)
IMAGE         ?= debian
# Where the command, its completions and its man pages are built.
BIN           ?= bin
SANDBOX       := $(BIN)/sandbox
# The image that carries evalbox's own programs into pods.
ARCH          ?= amd64
INIT_IMAGE    ?= bin/evalbox-init.tar
TEST_FLAGS    ?=
# What is measured, and how often: -case pass,import -n 20
BENCH_FLAGS   ?=
# How often each cell of the fault table is run, and how long the mixed load takes.
SOAK_N        ?= 1
SOAK_TIME     ?= 30m
LINT_VERSION  := v2.15.0
LINT          := .cache/golangci-lint-$(LINT_VERSION)/golangci-lint
VULN_VERSION  := v1.9.0
VULNCHECK     := .cache/govulncheck-$(VULN_VERSION)/govulncheck
# The vulnerability database, or a copy of it: file:///DIRECTORY.
VULNDB        ?= https://vuln.go.dev
RELEASER_VERSION := v2.15.1
RELEASER      := .cache/goreleaser-$(RELEASER_VERSION)/goreleaser
SBOM_VERSION  := v1.10.0
SBOM          := .cache/cyclonedx-gomod-$(SBOM_VERSION)/cyclonedx-gomod
# The key that signs a release, for cosign: a file, env://NAME or a key of a KMS. Without it nothing is signed.
COSIGN_KEY    ?=
# Where make install puts the command; DESTDIR is put before it, for packages.
PREFIX        ?= /usr/local
SHARE         := $(DESTDIR)$(PREFIX)/share
# PACKAGES=./policy tests only these packages.
PACKAGES      ?=
# The engines that the tests run on, one after the other; see hack/engine.
ENGINES       ?= floor current
# Where the tests in a browser write pictures; empty for nowhere.
SCREENSHOTS   ?=
GUIDES        ?=
GUIDE_TEST    := go -C hack test -vet=off $(SHORT) -count 1 -tags guides -timeout 20m $(TEST_FLAGS) ./guides -run TestGuides -guides=$(GUIDES) $(GUIDE_FLAGS)
# The clusters that the tests run on after them; see hack/cluster. CLUSTERS= leaves them out.
CLUSTERS      ?= kubernetes
# make test says -short to tests that take minutes and rarely fail.
SHORT         ?=
EXAMPLE       := run --input examples/digits/input examples/digits/train.py

# The hostile suite writes its table here: probes against engines.
HOSTILE_TABLE := $(CURDIR)/.cache/hostile

# Debian's Python, for which hack/setup.sh installs packages.
PYTHON        ?= /usr/bin/python3

# Programs, tests, vet and lint are compiled as the command is, so that one build of the dependencies serves all. Only
# the race detector needs another.
export CGO_ENABLED := 0
export GOFLAGS     := $(GOFLAGS) -trimpath

# What says which engine is meant.
ENGINE_ENV    := DOCKER_HOST,DOCKER_CONTEXT,DOCKER_CONFIG,DOCKER_TLS,DOCKER_TLS_VERIFY,DOCKER_CERT_PATH,DOCKER_API_VERSION

# The tests start engines of their own and mount file systems, which root may do.
# A build cache of its own keeps root's files out of the user's.
AS_ROOT = $$([ "$$(id -u)" -eq 0 ] || echo sudo --preserve-env=$(ENGINE_ENV) env PATH=$$PATH \
  CGO_ENABLED=0 GOFLAGS=-trimpath GOCACHE=$(CURDIR)/.cache/go-build-root GOMODCACHE=$$(go env GOMODCACHE) GOPROXY=$$(go env GOPROXY))

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: quickstart
quickstart: image ## from nothing to a score: engine, CLI, image, example
	@echo '$$ $(SANDBOX) $(EXAMPLE)'
	@$$(hack/setup.sh prefix) $(SANDBOX) $(EXAMPLE)

.PHONY: example-reports
example-reports: build ## write the reports of the examples anew: examples/reports (needs the engine)
	@dir=$$(mktemp -d); trap 'rm -rf $$dir' EXIT; export XDG_STATE_HOME=$$dir/state; mkdir -p examples/reports; \
	  $(SANDBOX) batch examples/leaderboard/solutions/*.py --task examples/leaderboard/task.yaml -j 2 --timeout 20s --quiet --workspace $$dir/work \
	    --grader examples/leaderboard/grader.py --answers examples/leaderboard/answers --results $$dir/results.jsonl; \
	  $(SANDBOX) sweep --exec 'python3 tool.py' --root examples/sweep --spec examples/sweep/base.json --axis rate=0.01,0.1,1.0,10.0 \
	    --axis penalty=0.0001,0.001,0.01 --seeds 1-3 --output $$dir/digits -j 2 --quiet; \
	  $(SANDBOX) gate run examples/gate/wish.yaml --seal --output $$dir/calc; \
	  $(SANDBOX) report $$dir/results.jsonl -o examples/reports/leaderboard.html; \
	  $(SANDBOX) report $$dir/digits -o examples/reports/sweep.html; \
	  $(SANDBOX) report $$dir/calc -o examples/reports/gate.html

.PHONY: build
build: ## build the CLI: bin/sandbox
	@go build -ldflags '-s -w -X github.com/evalbox/evalbox/cmd/sandbox/machine.version=$(VERSION)' -o $(SANDBOX) ./cmd/sandbox

.PHONY: completions
completions: build ## write the completions for bash, zsh and fish: bin/completions
	@mkdir -p $(BIN)/completions
	@for shell in bash zsh fish; do $(SANDBOX) completion $$shell > $(BIN)/completions/sandbox.$$shell; done

.PHONY: init-image
init-image: ## write the image of evalbox's own programs for pods: bin/evalbox-init.tar (ARCH=amd64)
	@GOOS=linux GOARCH=$(ARCH) go build -buildvcs=false -ldflags '-s -w' -o bin/porter-$(ARCH) ./cmd/sandbox-porter
	@go -C hack run ./initimage -arch $(ARCH) -porter ../bin/porter-$(ARCH) -o $(abspath $(INIT_IMAGE))
	@echo '$(INIT_IMAGE): docker load, or sandbox image push $(INIT_IMAGE) REGISTRY/REPOSITORY'

# The date of generated files: that of the commit, or without git that of the changes.
man python release release-dry-run: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || date -r CHANGELOG.md +%s)

.PHONY: man
man: ## write the man pages: bin/man
	@rm -rf $(BIN)/man
	@go -C hack run ./reference man '$(VERSION)' $(abspath $(BIN))/man

.PHONY: reference
reference: ## write docs/commands.md and docs/schemas.md anew
	@go -C hack run ./reference pages

.PHONY: install
install: completions man ## install the command, its completions and man pages (PREFIX=/usr/local)
	@install -D -m 0755 $(SANDBOX) $(DESTDIR)$(PREFIX)/bin/sandbox
	@install -D -m 0644 $(BIN)/completions/sandbox.bash $(SHARE)/bash-completion/completions/sandbox
	@install -D -m 0644 $(BIN)/completions/sandbox.zsh $(SHARE)/zsh/site-functions/_sandbox
	@install -D -m 0644 $(BIN)/completions/sandbox.fish $(SHARE)/fish/vendor_completions.d/sandbox.fish
	@install -d $(SHARE)/man/man1
	@install -m 0644 $(BIN)/man/*.1.gz $(SHARE)/man/man1
	@echo 'installed $(DESTDIR)$(PREFIX)/bin/sandbox'

.PHONY: uninstall
uninstall: ## remove what make install installed, with the same PREFIX; records, settings and images stay
	@rm -f $(DESTDIR)$(PREFIX)/bin/sandbox $(SHARE)/bash-completion/completions/sandbox $(SHARE)/zsh/site-functions/_sandbox \
	  $(SHARE)/fish/vendor_completions.d/sandbox.fish $(SHARE)/man/man1/sandbox.1.gz $(SHARE)/man/man1/sandbox-*.1.gz
	@echo 'removed $(DESTDIR)$(PREFIX)/bin/sandbox'

.PHONY: release-check
release-check: $(RELEASER) ## check .goreleaser.yaml
	$(RELEASER) check

.PHONY: release-dry-run
release-dry-run: $(RELEASER) $(SBOM) ## build everything that a release has, and check it: dist
	@hack/setup.sh release-tools
	@PATH=$(CURDIR)/$(dir $(SBOM)):$$PATH $(RELEASER) release --snapshot --clean --skip=publish,sign
	@$$([ "$$(id -u)" -eq 0 ] || echo sudo env PATH=$$PATH) hack/check-release dist

# The tag vMAJOR.MINOR.PATCH of the current commit names the version.
.PHONY: release
release: $(RELEASER) $(SBOM) ## publish the version of the current tag, with its section of CHANGELOG.md (COSIGN_KEY=KEY signs)
	@mkdir -p bin
	@hack/release-notes "$$(git describe --tags --exact-match)" > bin/release-notes.md
	@PATH=$(CURDIR)/$(dir $(SBOM)):$$PATH COSIGN_KEY='$(COSIGN_KEY)' $(RELEASER) release --clean --release-notes bin/release-notes.md \
	  $(if $(COSIGN_KEY),,--skip=sign)

.PHONY: setup
setup: ## make sure that a Docker engine answers and an image can be made
	@hack/setup.sh engine image-tools

# Only making an image needs root, so sudo comes second, unless the engine needs
# it already. An exit code of 1 is a difference to the lock, which root does not
# fix; what root has made is locked for the user as well.
.PHONY: image
image: setup build ## make and lock the image (IMAGE=debian) if it is not there
	@ensure="$$(hack/setup.sh prefix) $(SANDBOX) image ensure $(IMAGE)"; code=0; $$ensure || code=$$?; \
	  if [ $$code -gt 1 ] && [ "$$(id -u)" -ne 0 ]; then \
	    echo 'once more, as root' >&2; \
	    sudo --preserve-env=$(ENGINE_ENV) $(SANDBOX) image ensure $(IMAGE) && $$ensure; \
	  else exit $$code; fi

.PHONY: test
test: ## the tests of a change: all that need no engine, with -race, and those that do, the longest in a short form
	@$(MAKE) SHORT=-short test-unit test-engine $(if $(PACKAGES),,test-browser test-guides test-python)
	@echo 'passed; not run, because they take long: every guide, fault and hostile program, the whole of the second engine, a Kubernetes, lint, a release: make test-all'

.PHONY: test-all
test-all: vet vet-darwin lint test-unit test-engine test-browser test-guides test-python ## every test, for a change of words or engines, and before a release
	@for cluster in $(CLUSTERS); do $(MAKE) test-$$cluster; done
	@$(MAKE) release-dry-run

.PHONY: test-unit
test-unit: ## the tests that need no engine: tables, goldens, the fake engine, scripts of the command; with -race
	@hack/setup.sh test-tools
	@$(AS_ROOT) env PACKAGES='$(PACKAGES)' hack/ring unit $(SHORT) $(TEST_FLAGS)

.PHONY: test-engine
test-engine: image engines ## the tests that need an engine, on an old one and a current one
	@rm -rf $(HOSTILE_TABLE)
	@ring=engine; for engine in $(ENGINES); do echo "engine $$engine:"; \
	  $(AS_ROOT) hack/engine run $$engine env PACKAGES='$(PACKAGES)' EVALBOX_HOSTILE_TABLE=$(HOSTILE_TABLE) hack/ring $$ring $(SHORT) $(TEST_FLAGS); \
	  ring=second; done
	@[ ! -e $(HOSTILE_TABLE)/table.txt ] || cat $(HOSTILE_TABLE)/table.txt

.PHONY: test-kubernetes
test-kubernetes: image init-image ## the tests on a real Kubernetes, compiled from Go modules (minutes, once)
	@hack/setup.sh test-tools
	@hack/engine build kubernetes
	@$(AS_ROOT) env EVALBOX_INIT_TAR=$(CURDIR)/$(INIT_IMAGE) hack/engine run kubernetes bash -c \
	  'go test -tags cluster -timeout 30m -parallel 6 $(TEST_FLAGS) ./sandbox/engine/kubernetes && \
	   go test -tags cluster -timeout 30m $(TEST_FLAGS) -run TestScriptKubernetes ./cmd/sandbox && \
	   $(GUIDE_TEST) -settings kubernetes'

.PHONY: test-browser
test-browser: image ## the page of sandbox browse, and reports, in a real browser, Debian's chromium
	@hack/setup.sh browser-tools
	@$$(hack/setup.sh prefix) env PATH=$$PATH GOMODCACHE=$$(go env GOMODCACHE) GOPROXY=$$(go env GOPROXY) EVALBOX_SCREENSHOTS='$(SCREENSHOTS)' \
	  go -C hack test -vet=off $(SHORT) -count 1 -tags browser -timeout 10m $(TEST_FLAGS) ./browser

# GUIDES chooses guides by name, and GUIDE_FLAGS=-update writes what their commands print into the pages.
.PHONY: test-guides
test-guides: image ## every command of the guides in docs/guides (GUIDES=NAME for one)
	@hack/setup.sh test-tools python-tools
	@hack/engine build current
	@$(AS_ROOT) hack/engine run current $(GUIDE_TEST) -settings ,ssh,gpus

# The tests import the package from the wheel.
.PHONY: test-python
test-python: image python ## the Python client: types, the wheel, and its tests on the real command
	@$(PYTHON) -m black --check --quiet clients/python
	@$(PYTHON) -m mypy --config-file clients/python/pyproject.toml clients/python/src
	@rm -rf bin/python/site && $(PYTHON) -m pip install --quiet --root-user-action=ignore --no-deps --no-index --no-compile --target bin/python/site bin/python/*.whl
	@$$(hack/setup.sh prefix) env PATH=$(CURDIR)/bin:$$PATH PYTHONPATH=$(CURDIR)/bin/python/site PYTHONDONTWRITEBYTECODE=1 \
	  $(PYTHON) -X dev -m unittest discover -s clients/python/tests

.PHONY: python
python: ## build the wheel of the Python client, with packages of Debian: bin/python
	@hack/setup.sh python-tools
	@dir=$$(mktemp -d); trap 'rm -rf $$dir' EXIT; cp -r clients/python/. $$dir; rm -rf bin/python; \
	  EVALBOX_VERSION='$(VERSION)' PYTHONWARNINGS=ignore $(PYTHON) -m build --wheel --no-isolation --outdir bin/python $$dir > $$dir/log || { cat $$dir/log; exit 1; }
	@ls bin/python/*.whl

.PHONY: screenshots
screenshots: ## the same, and write the pictures of docs/browse.md and docs/report.md
	@$(MAKE) test-browser SCREENSHOTS=$(CURDIR)/docs/images

.PHONY: engines
engines: ## compile the engines that the tests run on, once
	@hack/setup.sh test-tools
	@hack/engine build $(ENGINES)

.PHONY: gate
gate: image ## some of the project's own tests through `sandbox gate`, offline; evidence in .cache/gate
	@go mod download
	@$$(hack/setup.sh prefix) env PATH=$$PATH GOMODCACHE=$$(go env GOMODCACHE) hack/gate.sh $(SANDBOX)

.PHONY: cover
cover: image ## how much of harness/invoke its tests reach; fails below 90 %
	@mkdir -p .cache
	@go test -coverprofile=.cache/invoke.cover ./harness/invoke/...
	@go tool cover -func=.cache/invoke.cover | awk '/^total:/ { print "harness/invoke: " $$3 " of statements"; \
	  sub("%", "", $$3); if ($$3 + 0 < 90) { print "less than 90 %" > "/dev/stderr"; exit 1 } }'

.PHONY: lint
lint: $(LINT) ## golangci-lint; see also format-check and vet
	$(LINT) run
	cd hack && ../$(LINT) run

.PHONY: vulncheck
vulncheck: $(VULNCHECK) ## known vulnerabilities in what the code calls (VULNDB=https://vuln.go.dev); fails without its database
	@VULNDB='$(VULNDB)' hack/vulncheck.sh $(VULNCHECK)

.PHONY: vulncheck-tool
vulncheck-tool:
	@echo $(VULNCHECK)

.PHONY: format-check
format-check: ## fail when a file is not formatted
	@bad=$$(gofmt -l $$(git ls-files --cached --others --exclude-standard '*.go')); \
	  [ -z "$$bad" ] || { printf 'not formatted, run gofmt -w:\n%s\n' "$$bad" >&2; exit 1; }

.PHONY: vet
vet: ## go vet, with the tests of every tag
	go vet -tags cluster ./...
	go -C hack vet -tags browser,guides ./...

.PHONY: vet-darwin
vet-darwin: ## go vet for macOS, for which all dependencies are compiled once more
	GOOS=darwin go vet ./...
	GOOS=darwin go -C hack vet ./...

$(LINT):
	GOBIN=$(CURDIR)/$(dir $(LINT)) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)

$(RELEASER):
	GOBIN=$(CURDIR)/$(dir $(RELEASER)) go install github.com/goreleaser/goreleaser/v2@$(RELEASER_VERSION)

$(SBOM):
	GOBIN=$(CURDIR)/$(dir $(SBOM)) go install github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@$(SBOM_VERSION)

$(VULNCHECK):
	GOBIN=$(CURDIR)/$(dir $(VULNCHECK)) go install golang.org/x/vuln/cmd/govulncheck@$(VULN_VERSION)

.PHONY: bench
bench: image engines ## measure beside docker run, runc, gVisor and others, on the engines of the tests (half an hour each)
	@hack/setup.sh bench-tools
	@mkdir -p .cache/bench
	@for engine in $(ENGINES); do echo "engine $$engine: go -C hack run ./bench"; \
	  $(AS_ROOT) hack/engine run $$engine go -C hack run ./bench -json ../.cache/bench/$$engine.json $(BENCH_FLAGS); done

# What takes an hour or more on each engine: every fault at every step of a run, 1,000 runs
# of one process, and a mixed load.
.PHONY: soak
soak: image engines ## faults at every step, 1,000 runs and mixed load, and the hostile suite, on the engines of the tests; hours
	@for engine in $(ENGINES); do for part in "-n $(SOAK_N) -time 12h" "-pool -n $(SOAK_N) -time 12h" "-soak $(SOAK_TIME)"; do \
	  echo "engine $$engine: go -C hack run ./faults $$part"; \
	  $(AS_ROOT) hack/engine run $$engine go -C hack run ./faults $$part; done; done
	@[ -n '$(CORPUS)' ] || { echo 'soak: CORPUS=DIR must name the directory of programs with an expectations.json' >&2; exit 2; }
	@$(MAKE) hostile CORPUS='$(CORPUS)'
	@for cluster in $(CLUSTERS); do $(MAKE) hostile-$$cluster soak-$$cluster; done

.PHONY: hostile-kubernetes
hostile-kubernetes: image init-image ## the hostile suite in pods of a real Kubernetes
	@hack/engine build kubernetes
	@$(AS_ROOT) env EVALBOX_INIT_TAR=$(CURDIR)/$(INIT_IMAGE) hack/engine run kubernetes \
	  go -C hack test -timeout 20m $(TEST_FLAGS) ./hostile

.PHONY: soak-kubernetes
soak-kubernetes: image init-image ## 200 scripts in one batch, and a batch that is killed ten times, on a real Kubernetes
	@hack/engine build kubernetes
	@$(AS_ROOT) env EVALBOX_INIT_TAR=$(CURDIR)/$(INIT_IMAGE) hack/engine run kubernetes hack/soak-kubernetes

.PHONY: hostile
hostile: image engines ## every hostile and honest program, on every engine, runtime and user; CORPUS=DIR adds the programs of a directory
	@rm -rf $(HOSTILE_TABLE)
	@go -C hack test -c -o ../.cache/hostile.test ./hostile
	@$(AS_ROOT) hack/hostile.sh '$(ENGINES)' $(HOSTILE_TABLE) '$(CORPUS)'

.PHONY: soak-v2
soak-v2: image ## the tests of engines on cgroup v2, rootful and rootless, in a virtual machine (half an hour)
	@hack/setup.sh vm-tools
	@$(AS_ROOT) hack/soak-v2

.PHONY: clean
clean: ## remove what was built here
	@rm -rf bin dist .cache 2>/dev/null || sudo rm -rf bin dist .cache
	@echo 'images stay in the engine; to remove them: docker images -q "evalbox/*" | sort -u | xargs -r docker rmi'

# What a rebuild is compared with: make baselines BASELINES=before, and after it diff -r.
BASELINES     ?= .cache/baselines

.PHONY: baselines
baselines: image engines ## tables of conformance, faults, hostile programs and the benchmark, on the engines of the tests: .cache/baselines (hours)
	@mkdir -p '$(BASELINES)'
	@$(AS_ROOT) hack/baselines '$(BASELINES)' $(ENGINES)
	-@$(MAKE) hostile
	@cp $(HOSTILE_TABLE)/table.txt '$(BASELINES)/hostile.txt'
	@$(MAKE) bench > '$(BASELINES)/bench.txt'
	@cp .cache/bench/*.json '$(BASELINES)'
