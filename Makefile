# Everything one does with odfork. `make help` lists the targets from the comments behind `##`.
#
# Owns: the order of things and where `make install` puts them. The steps of `check` are in .ci/check, Debian
# packages in .ci/packages. Settings: PREFIX, LIBDIR, DESTDIR, CARGO, CARGO_TARGET_DIR, GLIBC.

PREFIX  ?= /usr/local
LIBDIR  ?= $(PREFIX)/lib
DESTDIR ?=
CARGO   ?= cargo
TARGET  := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)
GLIBC   ?=
RELEASE := $(TARGET)$(if $(GLIBC),/$(shell uname -m)-unknown-linux-gnu)/release
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
PRELOAD := crates/odfork-preload
SPAWN   := crates/odfork-spawn-c
IMAGE   := crates/odfork-image-c
ZYGOTE  := crates/odfork-zygote-c
XTASK   := $(CARGO) run -q --locked --manifest-path crates/xtask/Cargo.toml --target-dir $(TARGET)/xtask --
INSTALL ?= install

.DEFAULT_GOAL := help
.PHONY: help wheel deb dist site build products check check-full kernels demo bench bench-quick lab where python-figures python-suites examples header docs pages fmt lint soak measure-give install uninstall clean toolchain

help: ## List the targets
	@echo "odfork $(VERSION): make TARGET"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "PREFIX=$(PREFIX) and DESTDIR say where install puts things; CARGO_TARGET_DIR where cargo builds."

toolchain:
	@.ci/packages toolchain

build: toolchain ## Build the launcher, the library and the benchmark into target/release
	$(CARGO) build --release --workspace --locked

products: toolchain ## Build command and libraries; with GLIBC=2.28 for that glibc and newer
	$(if $(GLIBC),.ci/portable build $(GLIBC),$(CARGO) build --release --locked \
	    $(addprefix -p odfork-,cli preload pager-agent spawn-c image-c zygote-c))

check: ## Install what tests need, then run tests and lints (15 minutes on 2 processors)
	@.ci/check quick

check-full: ## All of them: kernels, every mode, models, fuzzing (an hour)
	@.ci/check full

soak: toolchain ## An hour of forking under pressure, signals, kills, limits (SECONDS, SEED, MODES=auto,huge,small)
	@$(CARGO) build -q --release --locked -p odfork-preload && $(CARGO) build -q --release --locked -p odfork-cli
	@python3 tests/soak/soak.py $(RELEASE) $(or $(SECONDS),3600) $(or $(SEED),0) $(MODES)

measure-give: toolchain ## What giving memory back costs: calls, allocators, Redis (WHAT="calls allocators redis")
	@$(CARGO) build -q --release --locked -p odfork-preload
	@python3 -B tests/give/measure.py $(RELEASE) $(WHAT)

kernels: build ## Run the tests on Debian's 6.1, 6.12 and newest kernel in emulated guests (hours)
	@.ci/kernels $(RELEASE)

demo: build ## Unit tests in forked children of a 1 GB database, stock fork against odfork
	@ODFORK=$(RELEASE)/odfork demo/run.sh

bench: build ## Measure all promised figures, stock and odfork interleaved (6 to 8 minutes)
	$(RELEASE)/odfork bench promises --dir $(or $(DIR),odfork-results)

bench-quick: build ## The same with small sizes, below a minute; judges little
	$(RELEASE)/odfork bench promises --quick --dir $(or $(DIR),odfork-results)

lab: build ## Every published experiment, the programs of `odfork writes`, the report (about 12 minutes; DIR=odfork-results)
	$(RELEASE)/odfork bench all --dir $(or $(DIR),odfork-results)
	$(RELEASE)/odfork writes --suite --json $(or $(DIR),odfork-results)/writes.jsonl
	$(RELEASE)/odfork report $(or $(DIR),odfork-results)

where: build ## Measure in containers' and services' filters and privileges; writes docs/where-it-runs.md (needs root)
	$(CARGO) run -q --release --locked -p odfork-tests --example where -- docs/where-it-runs.md

wheel: toolchain ## Build the Python package's wheels into target/python
	@$(CARGO) build -q --release --locked -p odfork-preload
	@.ci/python wheel $(RELEASE)

python-figures: toolchain ## The Python package's figures against their bounds (FIGURES="--rounds 100 starts")
	@$(CARGO) build -q --release --locked -p odfork-preload
	@.ci/python figures $(RELEASE)

python-suites: toolchain ## Test suites of projects from PyPI under pytest --odfork (ROUNDS, PROJECTS="click")
	@$(CARGO) build -q --release --locked -p odfork-preload
	@.ci/python suites $(RELEASE)

deb: ## Build Debian packages into target/deb (needs debhelper)
	@debian/rules binary

dist: ## Make a source tarball with every crate, which builds without a network
	@.ci/dist

site: ## Make the site from docs/ into target/site (needs mdbook)
	@.ci/site

examples: build ## Compile and run the programs of examples/
	@.ci/examples $(RELEASE)

header: toolchain ## Write the C headers from the sources of their crates
	$(XTASK) header

docs: build pages ## Write docs/options.md, and manual pages and completions below target/
	$(RELEASE)/odfork options > docs/options.md

pages:
	@mkdir -p $(TARGET)/man $(TARGET)/completions
	$(RELEASE)/odfork man --dir $(TARGET)/man
	@for shell in bash zsh fish; do \
	    $(RELEASE)/odfork completions $$shell > $(TARGET)/completions/odfork.$$shell || exit 1; done
	@echo "manual pages in $(TARGET)/man, completions in $(TARGET)/completions"

fmt: toolchain ## Format all Rust code
	$(CARGO) fmt --all
	$(CARGO) fmt --manifest-path crates/xtask/Cargo.toml

lint: toolchain ## Check formatting and run clippy; every warning is an error
	@CHECK_STEPS="format lint" .ci/check

# Needs no cargo when everything is built: `make build docs && sudo make install`.
MADE := $(RELEASE)/odfork $(RELEASE)/libodfork_pager.so $(RELEASE)/libodfork.so $(RELEASE)/libodfork.a $(RELEASE)/libodfspawn.so $(RELEASE)/libodfspawn.a $(RELEASE)/libodfimage.so $(RELEASE)/libodfimage.a $(RELEASE)/libodfzygote.so $(RELEASE)/libodfzygote.a
DEST := $(DESTDIR)$(PREFIX)
LIB := $(DESTDIR)$(LIBDIR)
SHARE := $(DEST)/share/odfork
# What `odfork kernel` builds from; what was built in there stays out.
KERNEL = $(shell find kernel -type f -not -path '*/build/*' -not -name '*.o')

install: ## Install launcher, libraries, header, manual pages and completions below PREFIX
	@for file in $(MADE) $(TARGET)/man/odfork.1 $(TARGET)/completions/odfork.bash; do \
	    [ -e $$file ] || { echo "install: $$file is missing; run 'make build docs' first" >&2; exit 1; }; done
	$(INSTALL) -Dm755 $(RELEASE)/odfork $(DEST)/bin/odfork
	$(INSTALL) -Dm755 $(RELEASE)/libodfork.so $(LIB)/libodfork.so
	$(INSTALL) -Dm755 $(RELEASE)/libodfork_pager.so $(LIB)/libodfork_pager.so
	$(INSTALL) -Dm644 crates/odfork-pager-agent/include/odfork_page.h $(DEST)/include/odfork_page.h
	$(INSTALL) -Dm644 $(RELEASE)/libodfork.a $(LIB)/libodfork.a
	$(INSTALL) -Dm644 $(PRELOAD)/include/odfork.h $(DEST)/include/odfork.h
	$(INSTALL) -Dm755 $(RELEASE)/libodfspawn.so $(LIB)/libodfspawn.so
	$(INSTALL) -Dm644 $(RELEASE)/libodfspawn.a $(LIB)/libodfspawn.a
	$(INSTALL) -Dm644 $(SPAWN)/include/odfspawn.h $(DEST)/include/odfspawn.h
	$(INSTALL) -Dm755 $(RELEASE)/libodfimage.so $(LIB)/libodfimage.so
	$(INSTALL) -Dm644 $(RELEASE)/libodfimage.a $(LIB)/libodfimage.a
	$(INSTALL) -Dm644 $(IMAGE)/include/odfimage.h $(DEST)/include/odfimage.h
	$(INSTALL) -Dm755 $(RELEASE)/libodfzygote.so $(LIB)/libodfzygote.so
	$(INSTALL) -Dm644 $(RELEASE)/libodfzygote.a $(LIB)/libodfzygote.a
	$(INSTALL) -Dm644 $(ZYGOTE)/include/odfzygote.h $(DEST)/include/odfzygote.h
	@$(INSTALL) -d $(LIB)/pkgconfig
	@for pc in $(PRELOAD)/odfork.pc $(SPAWN)/odfspawn.pc $(IMAGE)/odfimage.pc $(ZYGOTE)/odfzygote.pc; do \
	    to=$(LIB)/pkgconfig/$${pc##*/}; \
	    sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@VERSION@|$(VERSION)|' $$pc.in > $$to && chmod 644 $$to || exit 1; done
	@$(INSTALL) -d $(DEST)/share/man/man1
	$(INSTALL) -m644 $(TARGET)/man/odfork*.1 $(DEST)/share/man/man1
	$(INSTALL) -Dm644 $(TARGET)/completions/odfork.bash $(DEST)/share/bash-completion/completions/odfork
	$(INSTALL) -Dm644 $(TARGET)/completions/odfork.zsh $(DEST)/share/zsh/site-functions/_odfork
	$(INSTALL) -Dm644 $(TARGET)/completions/odfork.fish $(DEST)/share/fish/vendor_completions.d/odfork.fish
	@$(INSTALL) -d $(SHARE)/systemd
	@for file in examples/systemd/*; do \
	    to=$(SHARE)/systemd/$${file##*/}; \
	    sed -e 's|/usr/local/lib|$(LIBDIR)|' -e 's|/usr/local|$(PREFIX)|' $$file > $$to && chmod 644 $$to || exit 1; done
	@for file in $(KERNEL); do $(INSTALL) -D -m $$([ -x $$file ] && echo 755 || echo 644) $$file $(SHARE)/$$file || exit 1; done
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" -ne 0 ] || ldconfig

uninstall: ## Remove what install put there
	rm -f $(DEST)/bin/odfork $(LIB)/libodfork_pager.so $(DEST)/include/odfork_page.h $(LIB)/libodfork.so $(LIB)/libodfork.a $(DEST)/include/odfork.h
	rm -f $(LIB)/libodfspawn.so $(LIB)/libodfspawn.a $(DEST)/include/odfspawn.h $(LIB)/pkgconfig/odfspawn.pc
	rm -f $(LIB)/libodfimage.so $(LIB)/libodfimage.a $(DEST)/include/odfimage.h $(LIB)/pkgconfig/odfimage.pc
	rm -f $(LIB)/libodfzygote.so $(LIB)/libodfzygote.a $(DEST)/include/odfzygote.h $(LIB)/pkgconfig/odfzygote.pc
	rm -f $(LIB)/pkgconfig/odfork.pc $(DEST)/share/man/man1/odfork.1 $(DEST)/share/man/man1/odfork-*.1
	rm -f $(DEST)/share/bash-completion/completions/odfork $(DEST)/share/zsh/site-functions/_odfork
	rm -f $(DEST)/share/fish/vendor_completions.d/odfork.fish
	rm -rf $(SHARE)/kernel $(SHARE)/systemd

clean: ## Remove everything built
	$(CARGO) clean
