"""stress-ng's stressors of memory and processes, each bounded by a number of operations."""

import os
import re

NAME = "stress"
PROGRAM = "/usr/bin/stress-ng"
SECONDS = 90
# Stressor, operations, further options. Unbounded ones, and those that fill the machine with
# processes, are bounded further.
STRESSORS = """
vm 20000 --vm-bytes=64M|vm-addr 8|vm-rw 200 --vm-rw-bytes=16M|vm-segv 40|vm-splice 2000
fork 300|vfork 300|vforkmany 4 --vforkmany-vm|forkheavy 300 --forkheavy-procs=20|clone 200
spawn 60|exec 60|daemon 60|zombie 100|wait 40|kill 2000|session 60|dynlib 60
mmap 6 --mmap-bytes=32M|mmapaddr 2000|mmapfixed 60|mmaphuge 20|mmapmany 4
mremap 60 --mremap-bytes=8M|madvise 20|mlock 20|mlockmany 10|mprotect 200|munmap 10|mincore 400
msync 100 --msync-bytes=4M|brk 4000|malloc 5000 --malloc-bytes=16M|stack 20|bigheap 400
shm 8 --shm-bytes=4M|shm-sysv 20 --shm-sysv-bytes=4M|zero 200|userfaultfd 400|pthread 400
memfd 20 --memfd-bytes=16M|memcpy 40|memrate 2 --memrate-bytes=16M|page-in 1|remap 20
rmap 400|memthrash 4|sigsegv 2000|sigfd 2000|sigq 2000|timer 2000|pipe 2000
tmpfs 4|fault 400
"""


def parse():
    units = {}
    for words in map(str.split, STRESSORS.replace("\n", "|").split("|")):
        numbers = [word for word in words if word.isdigit()]
        if words and words[0] not in units:
            units[words[0]] = (numbers[0], [word for word in words[1:] if word.startswith("--")])
    return units


ALL = parse()
UNITS = list(ALL)


def missing():
    return None if os.path.exists(PROGRAM) else "install the Debian package stress-ng"


def run(unit, stage):
    operations, more = ALL[unit]
    command = [*stage.launcher, PROGRAM, "--verify", "-v", "--metrics", "--temp-path", stage.folder,
               f"--{unit}", "1", f"--{unit}-ops", operations, *more,
               "--timeout", "12"]
    status = stage.run(command, SECONDS)
    text = stage.read()
    # It starts what died anew and is content: deaths count here.
    deaths = sorted(set(re.findall(r"(?:killed by|child died: signal \d+) '?(SIG\w+)", text)))
    complaints = len(re.findall(r"stress-ng: (?:fail|error):[^\n]*", text))
    done = re.search(rf"metrc: \[\d+\] {unit}\s+(\d+)", text)
    worked = "worked" if done and int(done[1]) else "did nothing"
    return {"run": f"status {status}, {worked}, {complaints} complaints {' '.join(deaths)}".strip()}
