#!/bin/bash
# python3 as its users fork: multiprocessing (fork context), concurrent.futures, subprocess with
# pipes, and a parent whose threads keep writing while it forks.
# odfork: expect=frozen program=python3 mb=25 modes=huge,small,auto
. "$(dirname "$0")/stage.sh"
need /usr/bin/python3 python3
cd "$SCRATCH" || exit 1
PYTHONHASHSEED=0 TMPDIR=$SCRATCH run /usr/bin/python3 "$input/python3_pools.py" ||
    fail "python3 exit status $?"
