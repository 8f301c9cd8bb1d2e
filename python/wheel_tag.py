"""Names the wheel: for any system without the library, for its oldest glibc with it.

The library is src/odfork/lib/libodfork.so, put there by `make wheel`. Its undefined symbols tell
the glibc it needs: the highest version among them.
"""

import platform
import re
import subprocess
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class WheelTag(BuildHookInterface):
    def initialize(self, version, build_data):
        library = Path(self.root, "src/odfork/lib/libodfork.so")
        if not library.exists():
            return
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-manylinux_{oldest_glibc(library)}_{platform.machine()}"


def oldest_glibc(library):
    """The glibc a library needs, as in a wheel's name: 2_34."""
    symbols = subprocess.run(
        ["objdump", "-T", str(library)], check=True, capture_output=True, text=True
    ).stdout
    found = re.findall(r"GLIBC_(\d+)\.(\d+)", symbols)
    return "{}_{}".format(*max(((int(a), int(b)) for a, b in found), default=(2, 17)))
