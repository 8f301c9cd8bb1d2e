# The stage every real-program script plays on; sourced, not run. It owns the launcher prefix, the
# scratch folder, skipping, the list of started processes and their end. It knows no program.
# From the caller:  ODFORK_RUN  launcher prefix, words split at blanks (empty: stock)
#                   SCRATCH     a folder of this run alone (default: a fresh one, removed at the end)
#                   KEEP        a folder shared by the runs of one test session, for compiled programs
#                   ODTEST_SLOW how many times slower the machine is: an emulated one
# Rules: stdout carries only what must be byte-identical with and without odfork; remarks go to
# stderr; every process is ended by the pid it was started with; exit 77 means "skipped, see the
# line". shellcheck shell=bash
set -u
export LC_ALL=C TZ=UTC
umask 022
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
input=$here/input

own_scratch=
if [ -z "${SCRATCH:-}" ]; then
    SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/odfork-real.XXXXXX")
    chmod 755 "$SCRATCH" # programs that drop to another user must reach it
    own_scratch=yes
fi
KEEP=${KEEP:-$SCRATCH}
slow=${ODTEST_SLOW:-1}
export SCRATCH KEEP
read -r -a launch <<<"${ODFORK_RUN:-}"
unset ODFORK_RUN # the launcher warns of ODFORK_ variables it does not know

# run PROGRAM ARGS...: in the foreground, under the launcher when there is one
run() { "${launch[@]}" "$@"; }

remark() { echo "$(basename "$0"): $*" >&2; }

fail() {
    remark "FAIL: $*"
    exit 1
}

skip() {
    echo "SKIP $(basename "$0" .sh): $*"
    exit 77
}

# need PATH PACKAGE: skip the whole script when PATH is not there
need() { [ -e "$1" ] || skip "$1 is missing; install the Debian package $2"; }

# first_of PATH...: prints the first path that exists
first_of() {
    local candidate
    for candidate; do
        [ -e "$candidate" ] && echo "$candidate" && return 0
    done
    return 1
}

# digest: of stdin
digest() { sha256sum | cut -c1-32; }

alive() { kill -0 "$1" 2>/dev/null && [ "$(sed 's/.*) \(.\).*/\1/' "/proc/$1/stat" 2>/dev/null)" \
    != Z ]; }

# wait_until SECONDS WHAT COMMAND...: polls until COMMAND succeeds, fails the script at the deadline,
# which is later on a slow machine
wait_until() {
    local deadline=$((SECONDS + $1 * slow)) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$deadline" ] || fail "waited too long for $what"
        sleep 0.05
    done
}

# born PID: when the process started; a pid alone may by now belong to somebody else
born() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }

started=()
# mind PID: this process is ended with the script if it still runs then
mind() { started+=("$1:$(born "$1")"); }

still_runs() { alive "${1%:*}" && [ "$(born "${1%:*}")" = "${1#*:}" ]; }

# shellcheck disable=SC2329  # called by the trap
end_stage() {
    local status=$? entry tries
    trap - EXIT INT TERM HUP
    for entry in "${started[@]}"; do
        still_runs "$entry" && kill -TERM "${entry%:*}" 2>/dev/null
    done
    for entry in "${started[@]}"; do
        for ((tries = 0; tries < 100 * slow; tries++)); do
            still_runs "$entry" || continue 2
            sleep 0.05
        done
        remark "pid ${entry%:*} did not end on SIGTERM; killed"
        kill -KILL "${entry%:*}" 2>/dev/null
    done
    [ -n "$own_scratch" ] && rm -rf "$SCRATCH"
    exit "$status"
}
trap end_stage EXIT
trap 'exit 143' INT TERM HUP

# free_port: a TCP port on the loopback that nobody listens on now
free_port() {
    /usr/bin/perl -MIO::Socket::INET -e \
        'print IO::Socket::INET->new(LocalAddr => "127.0.0.1", Listen => 1)->sockport, "\n"'
}

# build_once NAME COMMAND...: runs COMMAND once per KEEP folder, however many scripts ask at the
# same time; COMMAND gets the path of the wanted file as $OUT
build_once() {
    local name=$1
    shift
    OUT=$KEEP/$name
    (
        flock 9
        [ -e "$OUT" ] || { "$@" && [ -e "$OUT" ]; }
    ) 9>"$KEEP/$name.lock" || fail "cannot build $name"
}
