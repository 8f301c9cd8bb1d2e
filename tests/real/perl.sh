#!/bin/bash
# perl with a large hash and array: fork, fork-open, pipes, backticks, wait statuses, signals
# between processes.
# odfork: expect=frozen program=perl mb=35 modes=huge,small,auto
. "$(dirname "$0")/stage.sh"
need /usr/bin/perl perl
PERL_HASH_SEED=0 run /usr/bin/perl "$input/perl_forks.pl" 2>&1 || fail "perl exit status $?"
