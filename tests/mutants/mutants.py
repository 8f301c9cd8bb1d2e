"""Which wrappers of libodfork.so would nobody miss?

  mutants.py LIBRARY [NAME...]

For each function that the library puts before libc's, makes a copy of the library without it: its
symbol becomes one that is undefined. Runs the programs of tests/programs that call the function
with that copy, until one fails. A wrapper without which all pass has no test that can fail.

Prints a line for each function, and ends with status 1 if one survived. Not all of those are gaps:
some wrappers matter to live memory only (MODES=most,live), some save time and no byte.
"""

import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

PROGRAMS = pathlib.Path(__file__).resolve().parent.parent / "programs"
MODES = os.environ.get("MODES", "most").split(",")
DYNSYM, SYMBOL, UNDEFINED = 11, struct.Struct("<IBBHQQ"), 0


def symbols(image):
    """Offset, section and name of each dynamic symbol of an ELF file."""
    table, = struct.unpack_from("<Q", image, 0x28)
    count, = struct.unpack_from("<H", image, 0x3C)
    sections = [struct.unpack_from("<IIQQQQIIQQ", image, table + 64 * i) for i in range(count)]
    for section in (s for s in sections if s[1] == DYNSYM):
        names = sections[section[6]][4]
        for at in range(section[4], section[4] + section[5], SYMBOL.size):
            name, _, _, where, _, _ = SYMBOL.unpack_from(image, at)
            end = image.index(0, names + name)
            yield at, where, bytes(image[names + name:end]).decode()


def without(image, name):
    copy = bytearray(image)
    for at, where, other in symbols(image):
        if where != UNDEFINED and other == name:
            struct.pack_into("<H", copy, at + 6, UNDEFINED)
    return copy


def fails(program, library):
    """The first of its outcomes that is a failure."""
    command = ["cargo", "test", "-q", "--profile", "bench", "--locked", "-p", "odfork-tests",
               "--test", "programs", "--", program + "::"]
    for mode in MODES:
        environment = dict(os.environ, ODFORK_LIB=str(library), ODTEST_MODES=mode)
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        failed = re.search(r"^---- (\S+) ----$", done.stdout, re.M)
        if failed:
            return failed[1]
        if done.returncode != 0:
            sys.exit(f"mutants: {' '.join(command)}: {done.stderr[-2000:]}")
    return None


def main(library, *chosen):
    image = pathlib.Path(library).read_bytes()
    ours = {name for _, where, name in symbols(image) if where != UNDEFINED and name}
    names = chosen or sorted(name for name in ours if not name.startswith("odfork_"))
    unknown = sorted(set(names) - ours)
    if unknown:
        sys.exit(f"mutants: {library} has no function {', '.join(unknown)}")
    sources = {path.stem: path.read_text() for path in sorted(PROGRAMS.glob("*.c"))}
    survived = 0
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        copy = pathlib.Path(folder) / "libodfork.so"
        for name in names:
            copy.write_bytes(without(image, name))
            copy.chmod(0o755)
            callers = [p for p, text in sources.items() if re.search(rf"\b{name}\(", text)]
            failed = next(filter(None, (fails(p, copy) for p in callers)), None)
            survived += failed is None
            passed = f"survived {len(callers)} programs"
            print(f"{name}: {'missed by ' + failed if failed else passed}", flush=True)
    print(f"{len(names)} functions, {survived} survived")
    return survived > 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
