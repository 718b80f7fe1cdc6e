# make build     both programs in bin/
# make demo      build, then the main job: an agent started, prompted, seen, stopped
# make test      all tests, with the race detector
# make e2e       real agents from npm, namespaces, a full disk (some need root)
# make bench     against other process managers (needs root); writes BENCH.md
# make lint      gofumpt, vet, staticcheck
# make fuzz      every fuzz target for FUZZTIME
# make cover     coverage of all packages
# make install   both programs into PREFIX/bin

GO      ?= go
PREFIX  ?= $(HOME)/.local
VERSION ?= 0.1.0-dev
FUZZTIME ?= 30s

# The tag leaves out the CLI library's man page generator, whose set-up alone
# would cost every host 200 KiB and 0.4 ms.
TAGS    := urfave_cli_no_docs
LDFLAGS := -s -w -X github.com/castctl/castctl/updater.Version=$(VERSION)

.PHONY: build demo test e2e bench lint fuzz cover install cross clean

build:
	CGO_ENABLED=0 $(GO) build -trimpath -tags $(TAGS) -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

demo: build
	@set -e; CAST_HOME=$$(mktemp -d); export CAST_HOME; \
	trap 'bin/castctl down --all; rm -rf "$$CAST_HOME"' EXIT; \
	say() { echo "$$ castctl $$*"; bin/castctl "$$@"; }; \
	say start demo; \
	say send demo '{"op":"binary_score","probability":0.3,"outcome":true}'; \
	say status; \
	say stop demo; \
	say status

test:
	$(GO) test -race ./...

e2e: build
	e2e/install.sh
	$(GO) test -tags e2e -count=1 -timeout 30m ./e2e/... ./cmd/castctl

bench: build
	bench/run.sh

lint:
	@out=$$($(GO) tool gofumpt -l .); if [ -n "$$out" ]; then echo "gofumpt: $$out"; exit 1; fi
	$(GO) vet ./...
	$(GO) vet -tags crashpoints ./...
	GOOS=darwin $(GO) vet ./...
	$(GO) build -o bin/staticcheck honnef.co/go/tools/cmd/staticcheck
	bin/staticcheck -tags e2e ./...
	GOOS=darwin bin/staticcheck ./...

fuzz:
	@for p in $$($(GO) list ./...); do \
	  dir=$$($(GO) list -f '{{.Dir}}' $$p); \
	  for f in $$(grep -ho '^func Fuzz[A-Za-z0-9_]*' $$dir/*_test.go 2>/dev/null | sed 's/^func //'); do \
	    echo "== $$p $$f"; $(GO) test $$p -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) || exit 1; \
	  done; \
	done

cover:
	$(GO) test -coverprofile=bin/cover.out -coverpkg=./... ./...
	$(GO) tool cover -func=bin/cover.out | tail -1

install: build
	install -d $(DESTDIR)$(PREFIX)/bin
	install bin/castctl bin/supercast-agent $(DESTDIR)$(PREFIX)/bin

cross:
	@for os in linux darwin; do for arch in amd64 arm64; do \
	  echo "build $$os/$$arch"; \
	  CGO_ENABLED=0 GOOS=$$os GOARCH=$$arch $(GO) build -tags $(TAGS) -o /dev/null ./cmd/castctl || exit 1; \
	  CGO_ENABLED=0 GOOS=$$os GOARCH=$$arch $(GO) build -tags $(TAGS) -o /dev/null ./cmd/supercast-agent || exit 1; \
	done; done

clean:
	rm -rf bin dist
