#!/bin/bash
# bash and dash, each holding a large variable: subshells, pipes, command substitution, background
# jobs, wait statuses, traps, here-documents; bash also coprocesses, process substitution, job
# control. Their stderr counts too: nothing may appear there that stock does not write.
# odfork: expect=frozen mb=7 program=bash modes=huge,small,auto
. "$(dirname "$0")/stage.sh"
need /bin/bash bash
need /usr/bin/dash dash
mkdir -p "$SCRATCH/shells" && cd "$SCRATCH/shells" || exit 1
run /bin/bash "$input/shell_bash.sh" 2>&1
status=$?
echo "bash exit status $status"
for shell in /usr/bin/dash /bin/bash; do
    name=$(basename $shell)
    mkdir "$SCRATCH/shells/$name" && cd "$SCRATCH/shells/$name" || exit 1
    run $shell "$input/shell_posix.sh" 2>&1
    status=$?
    echo "$name exit status $status"
done
