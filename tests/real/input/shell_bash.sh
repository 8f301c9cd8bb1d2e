# What only bash has: coproc, process substitution, PIPESTATUS, job control, wait -n, mapfile,
# arrays of some size.
big=$(head -c 8000000 /dev/zero | tr '\0' 'y')
declare -A table
for ((i = 0; i < 30000; i++)); do table[key$i]=$((i * i)); done
sum() { sha256sum | cut -c1-16; }

printf '%s' "$big" | sum
for ((i = 0; i < 30; i++)); do
    ( (( ${#big} == 8000000 && table[key$i] == i * i )) || echo "child $i WRONG"; table[key$i]=spoiled; big=short)
done
echo "${#big} ${#table[@]} ${table[key29]}"
echo "$(for ((i = 0; i < 30000; i += 100)); do echo "${table[key$i]}"; done | sum)"

coproc ECHO { while read -r line; do echo "got $line ${#big}"; done; }
echo_pid=$ECHO_PID # bash forgets it with the coprocess
echo hello >&"${ECHO[1]}"
read -r answer <&"${ECHO[0]}"
echo "coproc: $answer"
eval "exec ${ECHO[1]}>&-"
wait "$echo_pid"
echo "coproc ended: $?"

diff <(printf '%s' "$big" | fold | sum) <(fold <<<"$big" | sum) >/dev/null && echo same || echo "differs by the newline"
exit_with() { return "$1"; }
exit_with 3 | exit_with 0 | exit_with 5
echo "pipe ${PIPESTATUS[*]}"
set -o pipefail
printf '%s' "$big" | head -c 1 | wc -c
false | true; echo "pipefail $?"
set +o pipefail

statuses=()
for n in 11 22 33; do (exit $n) & done
for n in 1 2 3; do wait -n; statuses+=($?); done
printf '%s\n' "${statuses[@]}" | sort | tr '\n' ' '; echo
mapfile -t lines < <(seq 1 20000)
echo "lines ${#lines[@]} ${lines[19999]}"

set -m
sleep 30 & job=$!
kill -STOP $job
for ((i = 0; i < 500; i++)); do
    grep -q '^State:.T' /proc/$job/status && break
done
{
    /bin/kill -TERM $job
    /bin/kill -CONT $job
    status=147 # wait may first report the stop
    while [ $status -eq 147 ]; do wait $job; status=$?; done
} 2>/dev/null
echo "stopped and terminated job: $status"
(me=$BASHPID; [ "$(cut -d' ' -f5 /proc/$me/stat)" = $me ] && echo "own group") & wait
set +m

count=0
trap 'count=$((count + 1))' CHLD
for n in 1 2 3; do /bin/true; done
trap - CHLD
[ $count -ge 1 ] && echo "SIGCHLD trap ran"
trap 'echo "on exit: $? ${#big}"' EXIT
ulimit -c 0
{ (kill -SEGV $BASHPID); } 2>/dev/null # its message names a pid
echo "segfault status $?"
exec 3< <(printf '%s' "${big:0:3000000}")
sum <&3
exit 6
