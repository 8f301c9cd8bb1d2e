#!/bin/bash
# redis-server (multi-threaded: jemalloc's and the background I/O threads): load, BGSAVE and
# BGREWRITEAOF while writing, shut down; then a stock redis-server loads what the forked children
# wrote: digests must be equal.
# odfork: expect=frozen mb=32 program=redis-server modes=huge,small,auto
. "$(dirname "$0")/stage.sh"
server=/usr/bin/redis-server
cli=/usr/bin/redis-cli
need $server redis-server
need $cli redis-tools
dir=$SCRATCH/redis
mkdir -p "$dir" && cd "$dir" || exit 1
socket=$dir/socket

common=(--port 0 --unixsocket "$socket" --dir "$dir" --save "" --enable-debug-command yes
    --daemonize no --logfile "$dir/log" --loglevel notice --hz 100 --appendfsync no)
ask() { $cli -s "$socket" "$@"; }
info() { ask info persistence | tr -d '\r' | sed -n "s/^$1://p"; }
idle() { [ "$(info rdb_bgsave_in_progress)$(info aof_rewrite_in_progress)$(info aof_rewrite_scheduled)" = 000 ]; }
digest_of() { ask debug digest | tr -d '\r'; }

# start_server LAUNCHER-WORDS... -- OPTIONS...
start_server() {
    local words=()
    while [ "$1" != -- ]; do words+=("$1") && shift; done
    shift
    "${words[@]}" $server "${common[@]}" "$@" >>"$dir/out" 2>&1 &
    pid=$!
    mind $pid
    wait_until 30 "redis-server to load and answer" eval "[ \"\$(ask ping)\" = PONG ]"
}

stop_server() {
    ask shutdown nosave >/dev/null 2>&1
    wait "$pid"
    echo "$1: exit status $?"
}

background() { # background COMMAND RESULT-FIELD: starts it, waits for its end, prints the result
    wait_until 30 "earlier background work" idle
    ask "$1" >/dev/null
    wait_until 30 "$1" idle
    echo "$1 $(info "$2")"
}

awk 'BEGIN {
    for (i = 0; i < 200000; i++) printf "SET key:%d %0120d\r\n", i, i * 7919 % 1000003
    for (i = 0; i < 20000; i++) printf "HSET hash:%d f%d v%d\r\n", i % 200, i, i * 31
    for (i = 0; i < 20000; i++) printf "RPUSH list:%d item%d\r\n", i % 50, i
    for (i = 0; i < 20000; i++) printf "ZADD rank:%d %d m%d\r\n", i % 20, i * 17 % 1009, i
}' >load
# the writer: pairs that a snapshot may only ever see equal, overwrites, growth, frees in the
# background thread
awk 'BEGIN {
    for (i = 0; i < 40000; i++) {
        if (i % 20 == 0) printf "MULTI\r\nSET left %d\r\nSET right %d\r\nEXEC\r\n", i, i
        printf "SET key:%d %0100d\r\n", i * 7 % 200000, i
        if (i % 10 == 0) printf "APPEND key:%d tail%d\r\n", i * 13 % 200000, i
        if (i % 50 == 0) printf "UNLINK key:%d list:%d\r\n", i * 3 % 200000, i % 50
    }
}' >write

start_server "${launch[@]}" --
ask --pipe <load >pipe.out 2>&1 || fail "loading: $(tail -n 1 pipe.out)"
echo "loaded $(ask dbsize) $(digest_of)"
background bgsave rdb_last_bgsave_status
snapshots=0
for round in 1 2 3; do
    ask --pipe <write >pipe.out 2>&1 &
    writer=$!
    mind $writer
    wait_until 30 "earlier background work" idle
    ask bgsave >/dev/null
    wait_until 30 bgsave idle
    cp dump.rdb "mid$round.rdb" && snapshots=$((snapshots + 1))
    wait $writer || fail "the writer of round $round: $(tail -n 1 pipe.out)"
    ask set "round" $round >/dev/null
done
echo "snapshots while writing: $snapshots $(info rdb_last_bgsave_status)"
ask config set appendonly yes >/dev/null
wait_until 30 "the first append-only file" idle
ask --pipe <write >pipe.out 2>&1 &
writer=$!
mind $writer
background bgrewriteaof aof_last_bgrewrite_status
wait $writer
background bgrewriteaof aof_last_bgrewrite_status
ask debug sleep 0 >/dev/null
background bgsave rdb_last_bgsave_status
before=$(digest_of)
echo "before $(ask dbsize) $before"
stop_server "first server"

for number in 1 2 3; do
    /usr/bin/redis-check-rdb "mid$number.rdb" | grep -o 'RDB looks OK' ||
        fail "mid$number.rdb is damaged"
done
start_server -- --appendonly no
[ "$(digest_of)" = "$before" ] && echo "RDB reloaded: equal" || echo "RDB reloaded: DIFFERENT"
stop_server "RDB"
start_server -- --appendonly yes
[ "$(digest_of)" = "$before" ] && echo "AOF reloaded: equal" || echo "AOF reloaded: DIFFERENT"
stop_server "AOF"
start_server -- --appendonly no --dbfilename mid2.rdb
[ "$(ask get left)" = "$(ask get right)" ] && echo "mid snapshot: one instant" ||
    echo "mid snapshot: TORN"
stop_server "mid"
