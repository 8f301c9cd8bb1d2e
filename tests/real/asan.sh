#!/bin/bash
# A program built with AddressSanitizer: every planted bug is reported word for word as under stock
# fork, and correct use of memory is not. The option that keeps freed memory is what lets odfork
# freeze such a program.
# odfork: expect=frozen mb=60 program=asan_bugs modes=huge,small,auto
. "$(dirname "$0")/stage.sh"
need /usr/bin/clang clang
# A compiler without the sanitizer's runtime cannot link.
echo 'int main(void) { return 0; }' >"$SCRATCH/empty.c"
clang -fsanitize=address -o "$SCRATCH/empty" "$SCRATCH/empty.c" 2>/dev/null ||
    skip "clang has no AddressSanitizer; install the Debian package libclang-rt-14-dev"
compile() {
    clang -fsanitize=address -fsanitize-address-use-after-scope -O1 -g0 -fno-builtin -w \
        -o "$OUT.tmp" "$input/asan_bugs.c" >&2 &&
        mv "$OUT.tmp" "$OUT"
}
build_once asan_bugs compile
export ASAN_OPTIONS=detect_leaks=0:abort_on_error=0:symbolize=0
ASAN_OPTIONS+=:allocator_release_to_os_interval_ms=-1
mkdir -p "$SCRATCH/reports"
run setarch -R "$OUT" "$SCRATCH/reports" || fail "it ended with $?"
for report in $(cd "$SCRATCH/reports" && ls | sort -n); do
    echo "report $report"
    # Numbers of processes, and addresses of libraries, stack and mapped blocks, which one library
    # more moves; where rows of the stack's shadow begin.
    rows='^(=>|  )0x'
    grep -q 'ERROR.*: stack-' "$SCRATCH/reports/$report" || rows='^$'
    grep -vE "$rows" "$SCRATCH/reports/$report" |
        sed -E -e 's/==[0-9]+==/==PID==/; s/0x0*7[0-9a-f]{11}/ADDRESS/g; s/^(=>|  )0x[0-9a-f]+:/\1/' \
            -e 's/(sp|bp|pc|T0) 0x[0-9a-f]+/\1/g; s/\(BuildId: [0-9a-f]*\)//'
done
