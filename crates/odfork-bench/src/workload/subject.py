# A subject that is Python: holds memory, starts the tiny program by subprocess on command, and
# measures itself. Speaks the lines of protocol.rs: "exec python-subprocess plain COUNT" and
# "verify"; all else is "na". Arguments: bytes mapped, bytes touched, processor or "-", the
# program's bytes in hexadecimal.
import mmap
import os
import resource
import subprocess
import sys
import time

PAGE = 4096
MARK = b"\x5a"
MFD_EXEC = 0x10


def hold(size, touched):
    memory = mmap.mmap(-1, max(size, PAGE), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    pages = len(range(0, touched, PAGE))
    memory[0:touched:PAGE] = MARK * pages
    return memory


def tiny_program(image):
    try:
        file = os.memfd_create("tiny", os.MFD_CLOEXEC | MFD_EXEC)
    except OSError:
        file = os.memfd_create("tiny", os.MFD_CLOEXEC)
    os.write(file, image)
    return "/proc/%d/fd/%d" % (os.getpid(), file)


def usage():
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime for one in both), sum(one.ru_stime for one in both)


def start(count, program, null):
    user, system = usage()
    begin = time.perf_counter_ns()
    for _ in range(count):
        subprocess.run([program], stdout=null, check=True)
    each = (time.perf_counter_ns() - begin) / max(count, 1)
    user, system = (
        1e9 * (now - then) / max(count, 1) for now, then in zip(usage(), (user, system))
    )
    return "ok each=%.1f user=%.1f sys=%.1f" % (each, user, system)


def verify(memory, touched):
    begin = time.perf_counter_ns()
    # In pieces: a slice of bytes one page apart is a copy.
    for at in range(0, touched, 1 << 30):
        marks = memory[at:min(at + (1 << 30), touched):PAGE]
        if marks.count(MARK) != len(marks):
            return "wrong the memory of Python has other content"
    return "ok verify=%d" % (time.perf_counter_ns() - begin)


def obey(line, memory, touched, program, null):
    words = line.split()
    if words == ["verify"]:
        return verify(memory, touched)
    if words[:3] == ["exec", "python-subprocess", "plain"] and len(words) == 4:
        try:
            return start(int(words[3]), program, null)
        except (OSError, subprocess.SubprocessError) as error:
            return "wrong subprocess: " + str(error).replace("\n", " ")
    return "na this subject is Python, it only starts programs"


def serve(size, touched, processor, image):
    if processor != "-":
        os.sched_setaffinity(0, {int(processor)})
    try:
        memory = hold(int(size), int(touched))
        program = tiny_program(bytes.fromhex(image))
    except (OSError, ValueError, MemoryError, AttributeError) as error:
        print(
            "na Python cannot hold what it was asked for:",
            str(error).replace("\n", " "),
            flush=True,
        )
        return
    null = open(os.devnull, "wb")
    print("text ready", flush=True)
    for line in sys.stdin:
        print(obey(line, memory, int(touched), program, null), flush=True)


serve(*sys.argv[1:])
