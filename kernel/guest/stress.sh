#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# stress.sh SECONDS: in a guest, every stressor of the memory management for so many seconds with
# its own checks on, and copy-on-write page tables on for all processes. What fails so and also with
# them off says nothing about them. One line each: "ok NAME", "not ok NAME: why", "skip NAME: why".
seconds=${1:?usage: stress.sh SECONDS}
log=/tmp/stress.log
cd /tmp || exit 1

set_mode() {
	[ ! -e /proc/sys/vm/cow_fork ] || echo "$1" >/proc/sys/vm/cow_fork
}

# Without the right to poison pages on purpose: a stressor that does so dies of it.
run() {
	# shellcheck disable=SC2086
	setpriv --bounding-set -sys_admin --inh-caps -sys_admin \
		stress-ng "--$name" 2 $options --timeout "${seconds}s" --verify --temp-path /tmp \
		    --oomable >$log 2>&1
}

[ -e /proc/sys/vm/cow_fork ] || echo "# this kernel has no vm.cow_fork: a control run"
set_mode 2

# name, then the options that keep it small enough for a guest of 2 GB
while read -r name options; do
	run
	status=$?
	case $status in
	0) echo "ok $name" ;;
	3 | 4) echo "skip $name: $(grep -m 1 -i 'not\|skip' $log | cut -c1-150)" ;;
	*)
		cp $log $log.on
		set_mode 0
		if run; then
			echo "not ok $name: status $status, 0 with the mode off"
			tail -n 8 $log.on | sed 's/^/#   /'
		else
			echo "skip $name: fails with the mode off too"
		fi
		set_mode 2
		;;
	esac
done <<LIST
fork
vfork
forkheavy --forkheavy-procs 256
clone --clone-max 64
zombie --zombie-max 64
vm --vm-bytes 128M
mmap --mmap-bytes 64M
mmapfork
mremap --mremap-bytes 64M
madvise
mprotect
munmap
mlock
brk
stack
bigheap --bigheap-growth 64K
vm-rw --vm-rw-bytes 32M
vm-splice
userfaultfd --userfaultfd-bytes 32M
memthrash
tlb-shootdown
procfs
LIST

# A test of nothing would pass too.
if [ -e /proc/sys/vm/cow_fork ]; then
	shared=$(sed -n 's/^cowpt_share //p' /proc/vmstat)
	if [ "${shared:-0}" -gt 0 ]; then
		echo "ok sharing: $shared tables were shared"
	else
		echo "not ok sharing: no page table was shared"
	fi
fi
