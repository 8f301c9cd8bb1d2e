#!/bin/bash
# The report in a real browser: 360, 800 and 1400 pixels wide, light and dark.
#
#   tests/browser/check.sh                        a report of made-up samples
#   tests/browser/check.sh REPORT.html [DIR]      any report; screenshots go to DIR
#
# Needs python3 and the Debian package chromium, nothing else; skips aloud without them. Loads
# nothing from a network. Exit status: 0 when nothing failed or all was skipped.
set -u
cd "$(dirname "$0")/../.." || exit 1
browser=
for name in ${CHROMIUM:-} chromium chromium-browser google-chrome; do
    command -v "$name" >/dev/null && { browser=$(command -v "$name"); break; }
done
skip() { echo "browser: SKIPPED: $*" >&2; echo "0 passed, 0 failed, 1 skipped"; exit 0; }
[ -n "$browser" ] || skip "no chromium here; install the Debian package chromium"
command -v python3 >/dev/null || skip "no python3 here; install the Debian package python3"

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
report=${1-}
data=measured
if [ -z "$report" ]; then
    report=$work/report/report.html
    data=made-up
    echo "browser: making a report of made-up samples"
    ODFORK_REPORT_DIR=$work/report "${CARGO:-cargo}" test -q --profile bench --workspace --locked \
        --test report whole_report >"$work/log" 2>&1 ||
        { tail -n 20 "$work/log" >&2; echo "browser: the report could not be made" >&2; \
            echo "0 passed, 1 failed"; exit 1; }
fi
[ -f "$report" ] || { echo "browser: no file $report" >&2; echo "0 passed, 1 failed"; exit 1; }
shots=${2:-$work/shots}
mkdir -p "$shots" || exit 1
python3 tests/browser/drive.py "$browser" "$report" "$shots" "$work/profile" "$data"
