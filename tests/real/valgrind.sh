#!/bin/bash
# A program that forks below valgrind, which makes a copy of the process where a helper task is
# asked for: what valgrind reports, and that it reports nothing else, is as under stock fork.
# odfork: expect=stats program=fork_leak modes=huge,small,auto
. "$(dirname "$0")/stage.sh"
need /usr/bin/valgrind valgrind
need /usr/bin/gcc gcc
compile() { /usr/bin/gcc -O1 -g0 -o "$OUT.tmp" "$input/fork_leak.c" && mv "$OUT.tmp" "$OUT"; }
build_once fork_leak compile
for tool in memcheck none; do
    run /usr/bin/valgrind -q --tool=$tool "$OUT" 2>&1 |
        sed -E 's/^==[0-9]+==/==/; s/0x[0-9A-Fa-f]+/0x/g'
    echo "$tool: exit status ${PIPESTATUS[0]}"
done
