#!/bin/bash
# PostgreSQL 15 as an unprivileged user: initdb, a server whose every connection is a forked
# backend, pgbench with a fixed seed, parallel workers, a backend killed (the postmaster restarts
# the others), dump, stop.
# odfork: expect=stats program=postgres modes=huge,small,auto
. "$(dirname "$0")/stage.sh"
bin=/usr/lib/postgresql/15/bin
need $bin/postgres postgresql-15
need $bin/pgbench postgresql-15
dir=$SCRATCH/pg
mkdir -p "$dir" || exit 1

# the server refuses to run as root: become the account of the Debian package, or nobody
as_user=()
if [ "$(id -u)" -eq 0 ]; then
    account=$(id -un postgres 2>/dev/null || echo nobody)
    as_user=(/usr/bin/setpriv --reuid="$account" --regid="$(id -g "$account")" --clear-groups)
    chown "$account" "$dir"
    "${as_user[@]}" test -w "$dir" || skip "the account $account cannot write below $SCRATCH; use a SCRATCH folder it can reach"
fi
cd "$dir" || exit 1
export HOME=$dir PGHOST=$dir PGPORT=5432 PGUSER=tester PGDATABASE=postgres PGCONNECT_TIMEOUT=20

sql() { $bin/psql -X -q -A -t -v ON_ERROR_STOP=1 "$@" 2>&1; }
recovered() { grep -q 'all server processes terminated; reinitializing' server.log && ready; }
ready() { $bin/pg_isready -q; }

"${as_user[@]}" "${launch[@]}" $bin/initdb -D "$dir/data" -U tester -A trust --no-sync \
    --no-locale -E UTF8 >init.log 2>&1 ||
    fail "initdb: $(tail -n 3 init.log)"
cat >>data/postgresql.conf <<SETTINGS
listen_addresses = ''
unix_socket_directories = '$dir'
fsync = off
shared_buffers = 64MB
autovacuum_naptime = 1s
max_worker_processes = 4
restart_after_crash = on
SETTINGS

"${as_user[@]}" "${launch[@]}" $bin/postgres -D "$dir/data" >server.log 2>&1 &
server=$!
mind $server
wait_until 30 "postgres to accept connections" ready

$bin/pgbench -i -q -s 5 >bench.log 2>&1 || fail "pgbench -i: $(tail -n 3 bench.log)"
$bin/pgbench -n -c 4 -j 1 -t 250 --random-seed=42 >bench.log 2>&1 ||
    fail "pgbench: $(tail -n 3 bench.log)"
grep -E 'number of (transactions actually|failed)' bench.log
# a new connection, and so a new forked backend, for every transaction
$bin/pgbench -n -C -S -c 2 -t 60 --random-seed=7 >bench.log 2>&1 ||
    fail "pgbench -C: $(tail -n 3 bench.log)"
grep -E 'number of (transactions actually|failed)' bench.log

sums="select (select sum(abalance) from pgbench_accounts), (select sum(tbalance) from pgbench_tellers),
      (select sum(bbalance) from pgbench_branches), (select sum(delta) from pgbench_history), (select count(*) from pgbench_history)"
echo "sums $(sql -c "$sums")"
echo "accounts $(sql -c "select md5(string_agg(aid || ':' || abalance, ',' order by aid)) from pgbench_accounts")"
sql <<'STATEMENTS'
set parallel_setup_cost = 0; set parallel_tuple_cost = 0; set min_parallel_table_scan_size = 0;
set max_parallel_workers_per_gather = 2;
select 'parallel', count(*), sum(hashint4(aid)::bigint), max(abalance) from pgbench_accounts;
create table big as select i as id, md5(i::text) as text from generate_series(1, 100000) i;
set work_mem = '64MB';
select 'sort', md5(string_agg(text, '' order by text)) from big;
create index on big(text);
do $$ begin for i in 1..200 loop update big set text = text || 'x' where id = i * 37; end loop; end $$;
select 'updated', count(*), sum(length(text)) from big;
STATEMENTS

# kill one backend: the postmaster ends the others, recovers, and starts anew
sleeping="select pid from pg_stat_activity where query like '%pg_sleep(60)%' and pid <> pg_backend_pid()"
sql -c "select pg_sleep(60)" >victim.out &
client=$!
# shellcheck disable=SC2016  # expanded at each poll
wait_until 20 "the backend to sleep" eval '[ -n "$(sql -c "$sleeping")" ]'
victim=$(sql -c "$sleeping")
[ "$(sed -n 's/^PPid:\t//p' "/proc/$victim/status")" = "$server" ] ||
    fail "backend $victim is no child of $server"
kill -KILL "$victim"
wait $client
echo "client of the killed backend: status $?"
wait_until 30 "recovery after the killed backend" recovered
echo "after recovery $(sql -c "$sums")"

dump() { $bin/pg_dump --data-only "$@" 2>&1 |
    grep -v -e '^--' -e '^\\' -e '^SET' -e '^SELECT pg_catalog' | sort | digest; }
echo "dump $(dump -t pgbench_accounts -t pgbench_tellers -t pgbench_branches) $(dump -t big)"
echo "schema $($bin/pg_dump --schema-only | grep -v -e '^--' -e '^\\' | digest)"
kill -INT $server
wait $server
echo "server exit status $?"
grep -c 'database system is shut down' server.log
grep -E 'PANIC|TRAP|FATAL: .*could not fork' server.log
left=$(grep -l "^PPid:[[:space:]]*$server$" /proc/[0-9]*/status 2>/dev/null | wc -l)
echo "processes left: $left"
