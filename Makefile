# Everything one does with odfork. `make help` lists the targets from the comments behind `##`.
#
# Owns: the order of things and where `make install` puts them. The steps of `check` are in
# .ci/check, Debian packages in .ci/packages. Settings: PREFIX, LIBDIR, DESTDIR, CARGO,
# CARGO_TARGET_DIR, GLIBC.

PREFIX  ?= /usr/local
LIBDIR  ?= $(PREFIX)/lib
DESTDIR ?=
CARGO   ?= cargo
TARGET  := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)
GLIBC   ?=
RELEASE := $(TARGET)$(if $(GLIBC),/$(shell uname -m)-unknown-linux-gnu)/release
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
XTASK   := $(CARGO) run -q --locked --manifest-path crates/xtask/Cargo.toml \
           --target-dir $(TARGET)/xtask --
INSTALL ?= install

.DEFAULT_GOAL := help
.PHONY: help wheel deb rpm dist site build products check check-full kernels demo bench \
    bench-quick lab where python-figures python-suites examples header docs pages fmt lint soak \
    measure-give install uninstall clean toolchain

help: ## List the targets
	@echo "odfork $(VERSION): make TARGET"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "PREFIX=$(PREFIX) and DESTDIR: where things go; CARGO_TARGET_DIR: where cargo builds."

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

soak: toolchain ## An hour of forking under pressure (SECONDS, SEED, MODES=auto,huge,small)
	@$(CARGO) build -q --release --locked -p odfork-preload
	@$(CARGO) build -q --release --locked -p odfork-cli
	@python3 tests/soak/soak.py $(RELEASE) $(or $(SECONDS),3600) $(or $(SEED),0) $(MODES)

measure-give: toolchain ## What giving memory back costs (WHAT="calls allocators redis")
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

lab: build ## Every published experiment and the report (about 12 minutes; DIR=odfork-results)
	$(RELEASE)/odfork bench all --dir $(or $(DIR),odfork-results)
	$(RELEASE)/odfork writes --suite --json $(or $(DIR),odfork-results)/writes.jsonl
	$(RELEASE)/odfork report $(or $(DIR),odfork-results)

where: build ## Measure in containers' and services' filters: docs/where-it-runs.md (needs root)
	$(CARGO) run -q --release --locked -p odfork-tests --example where -- docs/where-it-runs.md

wheel: toolchain ## Build the Python package's wheels into target/python
	@$(CARGO) build -q --release --locked -p odfork-preload
	@.ci/python wheel $(RELEASE)

python-figures: toolchain ## The Python package's figures (FIGURES="--rounds 100 starts")
	@$(CARGO) build -q --release --locked -p odfork-preload
	@.ci/python figures $(RELEASE)

python-suites: toolchain ## Suites of projects from PyPI under pytest --odfork (PROJECTS="click")
	@$(CARGO) build -q --release --locked -p odfork-preload
	@.ci/python suites $(RELEASE)

deb: ## Build Debian packages into target/deb (needs debhelper; GLIBC=2.28)
	@.ci/deb build

rpm: ## Build RPM packages into target/rpm (needs rpmbuild; GLIBC=2.28)
	@.ci/rpm build

dist: ## Make a source tarball with every crate, which builds without a network
	@.ci/dist

site: ## Make the site from docs/ into target/site (mdBook comes by cargo)
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
DEST := $(DESTDIR)$(PREFIX)
LIB := $(DESTDIR)$(LIBDIR)
SHARE := $(DEST)/share/odfork
# Each library for C, and the crate with its header and its pkg-config file.
LIBRARIES := odfork:odfork-preload odfspawn:odfork-spawn-c odfimage:odfork-image-c \
             odfzygote:odfork-zygote-c
NAMES := $(foreach entry,$(LIBRARIES),$(firstword $(subst :, ,$(entry))))
MADE := $(RELEASE)/odfork $(RELEASE)/libodfork_pager.so $(TARGET)/man/odfork.1 \
        $(NAMES:%=$(RELEASE)/lib%.so) $(NAMES:%=$(RELEASE)/lib%.a) $(TARGET)/completions/odfork.bash
# What `odfork kernel` builds from; what was built in there stays out.
KERNEL = $(shell find kernel -type f -not -path '*/build/*' -not -name '*.o')
PLACES := -e 's|/usr/local/lib|@LIBDIR@|' -e 's|/usr/local|@PREFIX@|' \
          -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|'

install: ## Install launcher, libraries, headers, manual pages and completions below PREFIX
	@for file in $(MADE); do \
	    [ -e $$file ] || { echo "install: $$file is missing; run 'make build docs' first" >&2; \
	        exit 1; }; done
	@$(INSTALL) -d $(DEST)/bin $(DEST)/include $(LIB)/pkgconfig $(DEST)/share/man/man1 $(SHARE)/systemd
	$(INSTALL) -m755 $(RELEASE)/odfork $(DEST)/bin/odfork
	$(INSTALL) -m755 $(RELEASE)/libodfork_pager.so $(LIB)/libodfork_pager.so
	$(INSTALL) -m644 crates/odfork-pager-agent/include/odfork_page.h $(DEST)/include/odfork_page.h
	@set -e; for entry in $(LIBRARIES); do name=$${entry%:*} crate=crates/$${entry#*:}; \
	    $(INSTALL) -m755 $(RELEASE)/lib$$name.so $(LIB)/lib$$name.so; \
	    $(INSTALL) -m644 $(RELEASE)/lib$$name.a $(LIB)/lib$$name.a; \
	    $(INSTALL) -m644 $$crate/include/$$name.h $(DEST)/include/$$name.h; \
	    sed $(PLACES) $$crate/$$name.pc.in > $(LIB)/pkgconfig/$$name.pc; \
	    chmod 644 $(LIB)/pkgconfig/$$name.pc; done
	$(INSTALL) -m644 $(TARGET)/man/odfork*.1 $(DEST)/share/man/man1
	$(INSTALL) -Dm644 $(TARGET)/completions/odfork.bash \
	    $(DEST)/share/bash-completion/completions/odfork
	$(INSTALL) -Dm644 $(TARGET)/completions/odfork.zsh $(DEST)/share/zsh/site-functions/_odfork
	$(INSTALL) -Dm644 $(TARGET)/completions/odfork.fish \
	    $(DEST)/share/fish/vendor_completions.d/odfork.fish
	@set -e; for file in examples/systemd/*; do to=$(SHARE)/systemd/$${file##*/}; \
	    sed $(PLACES) $$file > $$to; chmod 644 $$to; done
	@set -e; for file in $(KERNEL); do \
	    $(INSTALL) -D -m $$([ -x $$file ] && echo 755 || echo 644) $$file $(SHARE)/$$file; done
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" -ne 0 ] || ldconfig

uninstall: ## Remove what install put there
	rm -f $(DEST)/bin/odfork $(LIB)/libodfork_pager.so $(DEST)/include/odfork_page.h
	rm -f $(NAMES:%=$(LIB)/lib%.so) $(NAMES:%=$(LIB)/lib%.a)
	rm -f $(NAMES:%=$(DEST)/include/%.h) $(NAMES:%=$(LIB)/pkgconfig/%.pc)
	rm -f $(DEST)/share/man/man1/odfork.1 $(DEST)/share/man/man1/odfork-*.1
	rm -f $(DEST)/share/bash-completion/completions/odfork $(DEST)/share/zsh/site-functions/_odfork
	rm -f $(DEST)/share/fish/vendor_completions.d/odfork.fish
	rm -rf $(SHARE)/kernel $(SHARE)/systemd
	@rmdir $(SHARE) 2>/dev/null || true

clean: ## Remove everything built
	$(CARGO) clean
