#!/bin/bash
# python3-numpy: a 200 MB array, forked children sum and overwrite slices of it.
# odfork: expect=frozen program=python3 mb=190 modes=huge,small
. "$(dirname "$0")/stage.sh"
need /usr/bin/python3 python3
need /usr/lib/python3/dist-packages/numpy/__init__.py python3-numpy
PYTHONHASHSEED=0 run /usr/bin/python3 "$input/numpy_slices.py" || fail "python3 exit status $?"
