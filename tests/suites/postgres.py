"""PostgreSQL's regression tests, against a temporary cluster of the packaged server."""

import glob
import os
import re
import shutil
import subprocess
import time

import source
from stage import account

NAME = "postgres"
UNITS = ["parallel_schedule"]
ROOT = "/usr/lib/postgresql/15"
RUNNER = f"{ROOT}/lib/pgxs/src/test/regress/pg_regress"
SECONDS = 2400
SETTINGS = """
listen_addresses = ''
fsync = off
shared_buffers = 64MB
max_connections = 60
max_prepared_transactions = 2
"""


def missing():
    for path, package in ((f"{ROOT}/bin/postgres", "postgresql-15"),
                          (RUNNER, "postgresql-server-dev-15"), ("/usr/bin/gcc", "gcc")):
        if not os.path.exists(path):
            return f"install the Debian package {package}"
    folder, reason = source.fetch("postgresql-15")
    if reason:
        return reason
    if os.path.exists(f"{folder}/regress.so") or compiled(folder):
        return None
    return "its functions in C cannot be compiled here"


def compiled(folder):
    """The functions in C that the tests load."""
    headers = f"-I{subprocess.getoutput('pg_config --includedir-server')}"
    one = f"{folder}/src/test/regress/regress.c"
    command = ["gcc", "-O2", "-w", "-shared", "-fPIC", headers, "-o", f"{folder}/regress.so", one]
    return subprocess.run(command, check=False).returncode == 0


def run(unit, stage):
    folder, _ = source.fetch("postgresql-15")
    user, number = account()
    work = f"{stage.folder}/postgres"
    shutil.copytree(f"{folder}/src/test/regress", work)
    shutil.copy(f"{folder}/regress.so", work)
    for path in glob.glob(f"{ROOT}/lib/autoinc.so") + glob.glob(f"{ROOT}/lib/refint.so"):
        shutil.copy(path, work)
    subprocess.run(["chown", "-R", str(number), work], check=True)
    stage.run([*user, f"{ROOT}/bin/initdb", "-D", f"{work}/cluster", "-U", "postgres",
               "-A", "trust", "--no-sync", "--no-locale", "-E", "UTF8"], 300, "initdb")
    with open(f"{work}/cluster/postgresql.conf", "a") as file:
        file.write(f"{SETTINGS}unix_socket_directories = '{work}'\n")
    stage.start([*user, *stage.launcher, f"{ROOT}/bin/postgres", "-D", f"{work}/cluster"], "server",
                cwd=work)
    deadline = time.monotonic() + 60
    while not os.path.exists(f"{work}/.s.PGSQL.5432") and time.monotonic() < deadline:
        time.sleep(0.1)
    status = stage.run([*user, RUNNER, f"--host={work}", "--port=5432", "--user=postgres",
                        f"--inputdir={work}", f"--outputdir={work}", f"--dlpath={work}",
                        f"--bindir={ROOT}/bin", "--max-concurrent-tests=20",
                        f"--schedule={work}/{unit}"], SECONDS, cwd=work)
    found = re.findall(r"^(?:test)?\s+(\S+)\s+\.\.\. (ok|FAILED|failed[^\d]*)", stage.read(), re.M)
    return {"exit status": str(status), **{name: outcome.strip() for name, outcome in found}}
