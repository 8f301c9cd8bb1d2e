#!/bin/bash
# sbcl with large Lisp data (its garbage collector maps, protects and zeroes memory itself):
# sb-posix fork, full collections in parent and children, run-program. Its heap is mapped
# executable, and executable memory is not frozen: what is checked is that nothing changes.
# odfork: expect=stats program=sbcl modes=huge,small,auto
. "$(dirname "$0")/stage.sh"
need /usr/bin/sbcl sbcl
need /usr/lib/sbcl/contrib/sb-posix.fasl sbcl
run /usr/bin/sbcl --dynamic-space-size 1024 --no-sysinit --no-userinit --disable-debugger \
    --load "$input/sbcl_forks.lisp" </dev/null 2>&1 || fail "sbcl exit status $?"
