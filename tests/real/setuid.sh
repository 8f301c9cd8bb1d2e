#!/bin/bash
# A setuid program started by an unprivileged user through the launcher: the loader drops the
# library, the program keeps its rights and its behaviour.
# odfork: expect=any modes=huge
. "$(dirname "$0")/stage.sh"
need /usr/bin/gcc gcc
need /usr/include/stdio.h libc6-dev
need /usr/bin/setpriv util-linux
[ "$(id -u)" -eq 0 ] || skip "only root can make a setuid program; run the tests as root"
compile() {
    /usr/bin/gcc -O1 -o "$OUT.tmp" "$input/forks.c" && chown root:root "$OUT.tmp" &&
        chmod 4755 "$OUT.tmp" &&
        mv "$OUT.tmp" "$OUT"
}
build_once setuid-forks compile
nobody=(/usr/bin/setpriv --reuid=65534 --regid=65534 --clear-groups)
"${nobody[@]}" test -x "$OUT" || skip "nobody cannot reach $KEEP; use a KEEP folder it can reach"
"${nobody[@]}" "$OUT" identity | grep -q 'euid 0' ||
    skip "$KEEP is mounted nosuid; set TMPDIR to a file system that is not"
for argument in identity one killed; do
    "${nobody[@]}" "${launch[@]}" "$OUT" $argument 2>/dev/null
    echo "$argument: exit status $?"
done

# Loaded into every program (ld.so(8), /etc/ld.so.preload), it takes no file's name from a caller
# who has fewer rights.
library=$("${launch[@]}" /bin/sh -c 'echo "${LD_PRELOAD:-}"')
there=$SCRATCH/everywhere
mkdir "$there" && export there library OUT
# shellcheck disable=SC2016
unshare -m bash -c '
    mount -t tmpfs none "$there" && mkdir -m 700 "$there"/{new,work,secret} &&
        mount -t overlay -o "lowerdir=/etc,upperdir=$there/new,workdir=$there/work" none /etc ||
        { echo "setuid.sh: no mounts: /etc/ld.so.preload was not tried" >&2; echo "0 made"; exit; }
    chmod 755 "$there" "$there/new"
    [ -z "$library" ] || echo "$library" >/etc/ld.so.preload
    export ODFORK_STATS=json ODFORK_STATS_FILE=$there/secret/made
    "$@" "$OUT" one >/dev/null 2>&1
    echo "$(find "$there/secret" -type f | wc -l) made"' bash "${nobody[@]}"
