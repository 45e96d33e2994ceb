# SPDX-License-Identifier: Apache-2.0
# Targets are explained in docs/development.md. `make help` lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build
MAKEFLAGS += --no-builtin-rules
.DELETE_ON_ERROR:

GO    ?= go
CLANG ?= clang
STRIP ?= llvm-strip

# One set of flags for building, testing and linting: each package is then compiled once.
export CGO_ENABLED := 0
export GOFLAGS     := $(filter-out -trimpath,$(shell $(GO) env GOFLAGS)) -trimpath

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
OBJ     := bpf-go/objects/bin
TMP     := build/bpf

# ---- the 24 variants: one table ------------------------------------------------------------
# An object's name is its flags: from_wep_v4.o <- -DDIR_FROM -DCLASS_WEP -DFAMILY_V4. The same
# words in the same order stand in bpf-go/variants, and a test compares the two.
DIRS     := from to
CLASSES  := wep hep lo nat tunnel l3dev
FAMILIES := v4 v6
VARIANTS := $(foreach d,$(DIRS),$(foreach c,$(CLASSES),$(foreach f,$(FAMILIES),$(d)_$(c)_$(f))))

upper         = $(shell echo $(1) | tr a-z A-Z)
word_of       = $(call upper,$(word $(2),$(subst _, ,$(1))))
variant_flags = -DDIR_$(call word_of,$(1),1) -DCLASS_$(call word_of,$(1),2) -DFAMILY_$(call word_of,$(1),3)

LAYOUTS := layout_v4 layout_v6
SINGLES := preamble policy clock
# Connect time: each family, and IPv4-mapped destinations of IPv6 sockets.
CTLBS   := ctlb_v4 ctlb_v6 ctlb_v46
OBJECTS := $(patsubst %,$(OBJ)/%.o,$(VARIANTS) $(LAYOUTS) $(SINGLES) $(CTLBS))
C_FILES := $(wildcard bpf-c/*.c bpf-c/*.h)

MULTIARCH := $(shell $(CC) -print-multiarch 2>/dev/null || echo $(shell uname -m)-linux-gnu)
CFLAGS    := -O2 -g -target bpf -mcpu=v3 -Wall -Wextra -Wno-unused-parameter -Wno-sign-compare -Werror \
	     -I/usr/include/$(MULTIARCH)

# $(call compile,source,flags): object $@ with its BTF but without DWARF, and its header dependencies.
# It appears complete or not at all, also when two makes run at the same time.
define compile
	@mkdir -p $(@D) $(TMP)
	@echo "  CLANG   $(@F)"
	@part=$(TMP)/$(@F).$$$$; trap 'rm -f $$part' EXIT; \
	$(CLANG) $(CFLAGS) $(2) -MMD -MT $@ -MF $(TMP)/$(@F).d -c $(1) -o $$part; \
	$(STRIP) -g $$part; \
	mv $$part $@
endef

# Every Go file, and what they embed, decides whether the binaries are out of date.
GO_FILES := $(shell find . \( -name '*.go' -o -name '*.yaml' \) -not -name '*_test.go' -not -path './build/*') go.mod go.sum
BINARIES := bin/felix-lite bin/lab
GO_BUILD := $(GO) build -ldflags '-s -w -X main.version=$(VERSION)'

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | sort | expand -t 16

.PHONY: deps
deps: ## install what is missing (Debian packages); quick when all is there
	@hack/deps.sh

.PHONY: build
build: deps ## bin/felix-lite and bin/lab: static, with all BPF objects inside
	@$(MAKE) --no-print-directory -j2 binaries

.PHONY: binaries objects
binaries: $(BINARIES)
objects: $(OBJECTS)

bin/felix-lite: $(GO_FILES) $(OBJECTS)
	@echo "  GO      $@"
	@$(GO_BUILD) -o $@ ./felix-lite/cmd/felix-lite

bin/lab: $(GO_FILES) $(OBJECTS)
	@echo "  GO      $@"
	@$(GO_BUILD) -o $@ ./fv-tests/cmd/lab

$(patsubst %,$(OBJ)/%.o,$(VARIANTS)): $(OBJ)/%.o: bpf-c/tc.c Makefile
	$(call compile,$<,$(call variant_flags,$*))

$(patsubst %,$(OBJ)/%.o,$(SINGLES)): $(OBJ)/%.o: bpf-c/%.c Makefile
	$(call compile,$<,)

$(patsubst %,$(OBJ)/%.o,$(CTLBS)): $(OBJ)/ctlb_%.o: bpf-c/ctlb.c Makefile
	$(call compile,$<,$(if $(filter v46,$*),-DFAMILY_V4 -DMAPPED=1,-DFAMILY_$(call upper,$*)))

$(patsubst %,$(OBJ)/%.o,$(LAYOUTS)): $(OBJ)/layout_%.o: bpf-c/layout.c Makefile
	$(call compile,$<,-DFAMILY_$(call upper,$*))

-include $(wildcard $(TMP)/*.d)

LAYOUT_GEN := $(GO) run ./bpf-go/layout/internal/gen -v4 $(OBJ)/layout_v4.o -v6 $(OBJ)/layout_v6.o \
	      -headers bpf-c -out bpf-go/layout -doc docs/maps.md

.PHONY: generate
generate: deps $(patsubst %,$(OBJ)/%.o,$(LAYOUTS)) ## bpf-go/layout and docs/maps.md from the C side's BTF, docs/configuration.md
	@$(LAYOUT_GEN)
	@$(GO) generate ./felix-lite/config

.PHONY: lint lint-c lint-go lint-generated
lint: deps lint-c lint-go lint-generated ## formatters, vet, staticcheck, generated files fresh

# Every variant is compiled with -Wall -Wextra -Werror: that the objects are there is half the lint.
lint-c: $(OBJECTS)
	@clang-format --dry-run -Werror $(C_FILES)

lint-go: $(OBJECTS)
	@unformatted="$$(gofmt -l $$(git ls-files --cached --others --exclude-standard '*.go'))"; \
	if [ -n "$$unformatted" ]; then echo "gofmt -w is needed for:"; echo "$$unformatted"; exit 1; fi
	@$(GO) vet ./...
	@$(GO) tool staticcheck ./...
	@$(GO) mod tidy -diff

lint-generated: $(patsubst %,$(OBJ)/%.o,$(LAYOUTS))
	@$(LAYOUT_GEN) -check

.PHONY: test
test: build lint ## lint, then every package's tests; as root; under 20 minutes on 2 cores
	@hack/test.sh

.PHONY: test-full
test-full: build lint ## as test, with every cell of the matrix; about half an hour more
	@LAB_CELLS=all hack/test.sh

.PHONY: test-kernels
test-kernels: build ## load every program and send packets on 5.10, 6.1 and 6.12 under QEMU
	@$(GO) run ./fv-tests/kernels/run

.PHONY: demo
demo: build ## two nodes, services, every path once
	@bin/lab demo

.PHONY: bench
bench: build ## build/bench.json; QUICK=1 for a short one
	@mkdir -p build
	@QUICK="$(QUICK)" $(GO) run ./fv-tests/bench

.PHONY: clean
clean: ## remove everything that was built
	@rm -rf bin build $(OBJ)/*.o
