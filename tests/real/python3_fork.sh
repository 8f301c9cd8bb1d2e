#!/bin/bash
# python3 with a large dict and list: children by os.fork check every byte, chains of forks,
# gc.freeze. The digests printed are computed in the children.
# odfork: expect=frozen program=python3 mb=80 modes=huge,small,auto
. "$(dirname "$0")/stage.sh"
need /usr/bin/python3 python3
PYTHONHASHSEED=0 run /usr/bin/python3 "$input/python3_fork.py" || fail "python3 exit status $?"
