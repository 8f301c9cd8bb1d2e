#!/bin/sh
# run.sh - prepares and runs the demo: installs what is missing, compiles sqlite_units, starts
# `odfork bench demo`.
#
# Owns: packages, the compiler call, the temporary folder. Environment: ODFORK = path of the odfork
# program (default: target/release/odfork beside this folder). Arguments go to `odfork bench demo`
# (--help lists them). Leaves nothing behind.
set -u
here=$(cd "$(dirname "$0")" && pwd)
odfork=${ODFORK:-$here/../target/release/odfork}
packages="gcc libc6-dev libsqlite3-dev python3"

missing() {
    for package in $packages; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q '^install ok installed' ||
            printf '%s ' "$package"
    done
}

install_missing() {
    wanted=$(missing)
    [ -z "$wanted" ] && return 0
    as_root=
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null && as_root="sudo -n"
        [ -n "$as_root" ] || { echo "demo: missing packages; as root: apt-get install $wanted" >&2; return 1; }
    fi
    echo "demo: installing $wanted"
    # shellcheck disable=SC2086
    { $as_root apt-get install -y -q --no-install-recommends $wanted \
        || { $as_root apt-get update -q &&
            $as_root apt-get install -y -q --no-install-recommends $wanted; }; } >/dev/null \
        || { echo "demo: apt-get failed; needed: $wanted" >&2; return 1; }
}

if [ ! -x "$odfork" ]; then
    echo "demo: no odfork program at $odfork; build it with: cargo build --release --workspace (or set ODFORK)" >&2
    exit 2
fi
install_missing || exit 2
folder=$(mktemp -d) || exit 2
trap 'rm -rf "$folder"' EXIT
trap : INT TERM         # `odfork bench demo` answers to these; this shell only waits and cleans up
gcc -std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra -o "$folder/sqlite_units" \
    "$here/sqlite_units.c" "$here/shop_tests.c" "$here/shop_load.c" "$here/shop_model.c" \
        -lsqlite3 || exit 2
"$odfork" bench demo --units "$folder/sqlite_units" --python-dict "$here/python_dict.py" "$@"
