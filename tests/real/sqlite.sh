#!/bin/bash
# SQLite: an in-memory database inside python3, unit tests in forked children that change it; then
# the sqlite3 shell with its own child processes (.shell, output pipes).
# odfork: expect=frozen mb=60 program=python3 modes=huge,small
. "$(dirname "$0")/stage.sh"
need /usr/bin/python3 python3
need /usr/bin/sqlite3 sqlite3
PYTHONHASHSEED=0 run /usr/bin/python3 "$input/sqlite_units.py" || fail "python3 exit status $?"
run /usr/bin/sqlite3 -batch :memory: <"$input/sqlite_shell.sql" 2>&1 ||
    fail "sqlite3 exit status $?"
