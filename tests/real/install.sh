#!/bin/bash
# Installs the Debian packages that the real-program tests run: what is there already is left alone,
# services are kept from starting, nothing is configured. It does not run any test.
# Exit status: 0 everything is there, 77 this machine cannot install (one line says what to
# install), 1 an installation failed. Rule: a test whose program is missing skips itself and names
# the package.
set -u

# program (or file) that must exist -> package that brings it
wanted=(
    /usr/bin/python3:python3
    /usr/lib/python3/dist-packages/numpy/__init__.py:python3-numpy
    /usr/bin/redis-server:redis-server
    /usr/lib/postgresql/15/bin/postgres:postgresql-15
    /usr/sbin/apache2:apache2-bin
    /usr/bin/ab:apache2-utils
    /usr/bin/curl:curl
    /usr/bin/gunicorn:gunicorn
    /usr/bin/systemd-analyze:systemd
    /usr/bin/sqlite3:sqlite3
    /usr/bin/perl:perl
    /usr/bin/ruby:ruby
    /usr/bin/node:nodejs
    /usr/bin/sbcl:sbcl
    /usr/bin/dash:dash
    /usr/bin/make:make
    /usr/bin/gcc:gcc
    /usr/include/stdio.h:libc6-dev
    /usr/bin/afl-fuzz:afl++
    /usr/bin/qemu-system-x86_64:qemu-system-x86
    /usr/bin/cpio:cpio
    /usr/bin/clang:clang
    /usr/lib/llvm-14/lib/clang/14.0.6/lib/linux/libclang_rt.asan-x86_64.a:libclang-rt-14-dev
    /usr/bin/valgrind:valgrind
    /usr/bin/setpriv:util-linux
    /usr/bin/sha256sum:coreutils
)

missing=()
for entry in "${wanted[@]}"; do
    [ -e "${entry%:*}" ] || missing+=("${entry##*:}")
done
if [ ${#missing[@]} -eq 0 ]; then
    echo "install: all ${#wanted[@]} programs for the real-program tests are there"
    exit 0
fi
echo "install: missing: ${missing[*]}"

if ! command -v apt-get >/dev/null; then
    echo "install: no apt-get here; install these by hand (Debian names): ${missing[*]}" >&2
    exit 77
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if ! sudo -n true 2>/dev/null; then
        echo "install: not root and no sudo without a password; run: sudo apt-get install --no-install-recommends ${missing[*]}" >&2
        exit 77
    fi
    as_root=(sudo -n)
fi

# A policy-rc.d that answers 101 keeps package scripts from starting services. One that is
# there already is the machine's own decision and stays; ours goes away again.
policy=/usr/sbin/policy-rc.d
log=$(mktemp)
made_policy=
# shellcheck disable=SC2329  # called by the trap
clean_up() {
    [ -n "$made_policy" ] && "${as_root[@]}" rm -f "$policy"
    rm -f "$log"
}
trap clean_up EXIT
trap 'exit 130' INT TERM
if [ ! -e "$policy" ]; then
    made_policy=yes
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
    "${as_root[@]}" chmod 755 "$policy"
fi

install_packages() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=120 "$@" >"$log" 2>&1
}

started=$SECONDS
echo "install: apt-get update"
"${as_root[@]}" apt-get update -o DPkg::Lock::Timeout=120 >"$log" 2>&1 ||
    { echo "install: apt-get update reported errors, going on with the lists there are:"; tail -n 3 "$log"; }

echo "install: ${#missing[@]} packages"
if ! install_packages "${missing[@]}"; then
    echo "install: not all in one go; one package at a time"
    failed=()
    for package in "${missing[@]}"; do
        if install_packages "$package"; then
            echo "install: $package"
        else
            echo "install: $package FAILED:" >&2
            tail -n 5 "$log" >&2
            failed+=("$package")
        fi
    done
    if [ ${#failed[@]} -gt 0 ]; then
        echo "install: could not install: ${failed[*]}; their tests will skip" >&2
        exit 1
    fi
fi
echo "install: done in $((SECONDS - started)) s"
