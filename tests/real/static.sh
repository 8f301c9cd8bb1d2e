#!/bin/bash
# A static program, which no preloaded library can reach: it must run exactly as without the
# launcher.
# odfork: expect=any modes=huge
. "$(dirname "$0")/stage.sh"
need /usr/bin/gcc gcc
need /usr/include/stdio.h libc6-dev
compile() { /usr/bin/gcc -O1 -static -o "$OUT.tmp" "$input/forks.c" && mv "$OUT.tmp" "$OUT"; }
build_once static-forks compile
run "$OUT" one two 2>/dev/null
echo "exit status $?"
run "$OUT" killed 2>/dev/null
echo "killed: $?"
echo "some input" | run "$OUT" stdin 2>/dev/null
echo "exit status $?"
