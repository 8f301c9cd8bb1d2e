#!/bin/bash
# AFL++: a target with a deferred fork server behind a 64 MB table. The launcher wraps the target,
# so the fork of AFL's runtime inside it is the one that is made fast. Edge maps must be identical,
# the planted crash found.
# odfork: expect=frozen mb=60 program=afl-target modes=huge,small,auto
. "$(dirname "$0")/stage.sh"
need /usr/bin/afl-fuzz afl++
need /usr/bin/afl-showmap afl++
need /usr/bin/afl-clang-fast afl++
compile() { AFL_QUIET=1 /usr/bin/afl-clang-fast -O1 -o "$OUT.tmp" "$input/afl_target.c" >&2 &&
    mv "$OUT.tmp" "$OUT"; }
build_once afl-target compile
target=$OUT
mkdir -p "$SCRATCH/afl/seeds" "$SCRATCH/afl/inputs" && cd "$SCRATCH/afl" || exit 1

# The fuzzer looks into the program it starts, and finds the launcher: tell it what it would have
# seen in the target.
export AFL_SKIP_BIN_CHECK=1 __AFL_DEFER_FORKSRV=1
# SIGTERM lets the fork server leave by _exit, and so its statistics come out
export AFL_KILL_SIGNAL=15 AFL_FORKSRV_INIT_TMOUT=$((20000 * slow))
export AFL_SKIP_CPUFREQ=1 AFL_I_DONT_CARE_ABOUT_MISSING_CRASHES=1 AFL_NO_AFFINITY=1 AFL_NO_UI=1 \
    AFL_NO_COLOR=1
export AFL_BENCH_UNTIL_CRASH=1

for number in $(seq 40); do
    awk -v n="$number" 'BEGIN { for (i = 0; i < n; i++) printf "%c", 33 + (i * n * 7 + n) % 90 }' \
        >"inputs/input$number"
done
afl-showmap -q -t $((5000 * slow)) -i inputs -o maps -- "${launch[@]}" "$target" \
    >showmap.log 2>&1 ||
    fail "afl-showmap: $(tail -n 5 showmap.log)"
echo "maps $(find maps -type f | wc -l) $(cd maps && sha256sum input* | digest)"
echo 'hello' | run "$target" # no fork server: the target alone

printf 'odf ' >seeds/near # one bit away from the crash
printf 'hello world' >seeds/plain
timeout $((60 * slow)) afl-fuzz -D -s 7 -t $((5000 * slow)) -V $((25 * slow)) -i seeds -o out \
    -- "${launch[@]}" "$target" >fuzz.log 2>&1
echo "afl-fuzz status $?"
stats=out/default/fuzzer_stats
[ -s $stats ] || fail "afl-fuzz: $(tail -n 5 fuzz.log)"
grep -E '^stability' $stats
crash=$(find out/default/crashes -name 'id:*' | head -n 1)
[ -n "$crash" ] || fail "the planted crash was not found: $(grep -E '^(execs_done|edges_found)' $stats | tr '\n' ' ')"
echo "crash found, begins with $(head -c 4 "$crash")"
