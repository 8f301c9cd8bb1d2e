#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# selftest.sh FOLDER TABLE MODE: in a guest, the kernel's own tests of the memory management, each
# started by MODE (the program of mode.c) with copy-on-write page tables on. A test that fails so
# and also with the mode off says nothing about them and is not counted. One line each: "ok NAME",
# "not ok NAME: why", "skip NAME: why".
folder=${1:?usage: selftest.sh FOLDER TABLE MODE} table=${2:?} mode=${3:?}
log=/tmp/selftest.log
cd "$folder" || exit 1

echo 64 >/proc/sys/vm/nr_hugepages
echo 1 >/proc/sys/vm/overcommit_memory
ulimit -l unlimited 2>/dev/null

on=2
if ! "$mode" 2 true 2>/dev/null; then
	echo "# this kernel has no copy-on-write page tables: a control run"
	on=0
fi

run() {
	# shellcheck disable=SC2086
	timeout -k 5 "$limit" "$mode" "$1" "./$name" $options >"$log.$1" 2>&1 </dev/null
}

# name, seconds at most, options
while read -r name limit options; do
	case $name in '' | \#*) continue ;; esac
	if [ ! -x "./$name" ]; then
		echo "skip $name: not built here"
		continue
	fi
	run $on
	status=$?
	case $status in
	0) echo "ok $name $options" ;;
	4) echo "skip $name $options: $(grep -m 1 -i 'skip\|no mode\|not' $log.$on | cut -c1-150)" ;;
	*)
		run 0
		off=$?
		if [ $off -ne 0 ]; then
			echo "skip $name $options: fails with the mode off too (status $off)"
		else
			echo "not ok $name $options: status $status, 0 with the mode off"
			grep -i 'not ok\|fail\|error' "$log.$on" | head -n 8 | sed 's/^/#   /'
		fi
		;;
	esac
done <"$table"
