#!/usr/bin/env python3
"""Follows a guide as it is written: makes its files, runs its commands, in a folder of its own.

    follow.py GUIDE.md RELEASE      RELEASE: the folder of the built programs

A block of code whose first line is a comment with nothing but a file's name is that file. In blocks
of console every line behind "$ " is a command; all of them run in one shell that ends at the first
that fails. What else stands there is what a reader saw, and is not compared. The place of the
installed library becomes that of the built one.

Exit status: that of the shell; 77 when a program a guide names in `Needs` is missing (said in a
line), 2 when the guide has no command.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

INSTALLED = "/usr/local/lib/libodfork.so"
NAME = re.compile(r"^(?:/\*|//|#) ([\w.-]+\.\w+)(?: \*/)?$")
NEEDS = re.compile(r"^Needs .*?: (.*)$", re.MULTILINE)
LONGEST = 600


def blocks(text):
    """Language and lines of each fenced block."""
    inside = None
    for line in text.splitlines():
        if inside is not None and line == "```":
            yield inside
            inside = None
        elif inside is not None:
            inside[1].append(line)
        elif line.startswith("```"):
            inside = (line[3:], [])


def missing(text):
    """Programs in backquotes of the paragraph that begins with Needs."""
    found = NEEDS.search(text)
    names = re.findall(r"`([\w+-]+)`", found.group(1)) if found else []
    return [name for name in names if shutil.which(name) is None]


def follow(guide, release):
    text = guide.read_text()
    lacking = missing(text)
    if lacking:
        print(f"SKIP {guide.name}: missing: {', '.join(lacking)}")
        return 77
    commands = ["set -euo pipefail"]
    with tempfile.TemporaryDirectory(prefix="odfork-guide-") as folder:
        for language, lines in blocks(text):
            name = NAME.match(lines[0]) if lines else None
            if name:
                pathlib.Path(folder, name.group(1)).write_text("\n".join(lines) + "\n")
            elif language == "console":
                commands += [line[2:] for line in lines if line.startswith("$ ")]
        if len(commands) == 1:
            print(f"{guide.name} has no command")
            return 2
        script = "\n".join(commands).replace(INSTALLED, str(release / "libodfork.so"))
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("AFL_", "ODFORK_"))}
        environment["PATH"] = f"{release}:{environment['PATH']}"
        # What somebody sets whose terminal and processor are not to be looked at.
        environment |= {"AFL_NO_UI": "1", "AFL_NO_AFFINITY": "1", "AFL_SKIP_CPUFREQ": "1"}
        environment |= {"AFL_I_DONT_CARE_ABOUT_MISSING_CRASHES": "1"}
        return subprocess.run(
            ["bash", "-c", script], cwd=folder, env=environment, timeout=LONGEST
        ).returncode


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(follow(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()))
