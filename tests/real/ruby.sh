#!/bin/bash
# ruby with 100 MB of strings: fork blocks, IO.popen("-"), garbage collection and compaction between
# forks, threads.
# odfork: expect=frozen mb=80 program=ruby modes=huge,small
. "$(dirname "$0")/stage.sh"
need /usr/bin/ruby ruby
run /usr/bin/ruby "$input/ruby_forks.rb" 2>&1 || fail "ruby exit status $?"
