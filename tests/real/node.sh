#!/bin/bash
# node holding 100 MB of buffers and objects (JIT code, many threads, large reservations):
# child_process in all its forms, worker threads, a cluster answering on a unix socket.
# odfork: expect=frozen mb=90 program=node modes=huge,small,auto
. "$(dirname "$0")/stage.sh"
need /usr/bin/node nodejs
mkdir -p "$SCRATCH/node" && cd "$SCRATCH/node" || exit 1
SOCKET=$SCRATCH/node/s run /usr/bin/node "$input/node_children.js" 2>&1 ||
    fail "node exit status $?"
