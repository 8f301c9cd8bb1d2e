# POSIX shell workload around a large variable. Every background job is waited for before the next
# line of output, so the order never varies. Exit status 9 comes from the EXIT trap.
big=$(head -c 2000000 /dev/zero | tr '\0' 'x')
sum() { cksum | cut -d' ' -f1; }
printf '%s' "$big" | sum
i=0
while [ $i -lt 20 ]; do
    (big=${big%xxxx}$i; printf '%s' "$big" | sum)
    i=$((i + 1))
done | sum
echo "length ${#big} after the subshells changed theirs"

for code in 0 1 7 42 126 255; do
    (exit $code) &
    wait $!
    printf '%s ' $?
done
echo
{ (kill -TERM $(exec sh -c 'echo $PPID')) & wait $!; } 2>/dev/null
echo "terminated: $?"
(trap '' PIPE; printf '%s' "$big" 2>/dev/null; echo "write status $?" >write.status) | head -c 10
cat write.status
nested=$(echo $(echo $(echo $(printf %s "$big" | wc -c))))
echo "nested $nested"
: >out
for i in 1 2 3 4 5; do
    (printf '%s%s' "$i" "$big" | sum >>out.$i) &
done
wait
cat out.1 out.2 out.3 out.4 out.5 | sum

got=
trap 'got=$got.usr1' USR1
(kill -USR1 $$)
kill -USR1 $$
(trap 'echo child trap; exit 3' TERM; kill -TERM $(exec sh -c 'echo $PPID'); sleep 1; echo NOT REACHED)
echo "traps $got, status $?"
(trap 'echo subshell leaves' EXIT; big=; exit 4)
echo "subshell status $?"
cat <<HERE | sum
$big
$(echo substituted in a here-document)
HERE
mkfifo pipe
(printf '%s' "$big" >pipe) &
sum <pipe
wait $!
echo "fifo writer $?"
set -- $(echo a b c | tr a-z A-Z)
echo "words $# $3"
exec 5>&1
(echo through descriptor 5 >&5)
/bin/true | /bin/false; echo "pipe status $?"
! /bin/true; echo "negated $?"
trap 'echo leaving ${#big}; exit 9' EXIT
