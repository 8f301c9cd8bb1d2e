"""Names the wheel: for any system without the library, for its oldest glibc with it.

The library is src/odfork/lib/libodfork.so, put there by `make wheel`. It is for glibc 2.28 and
newer; its undefined symbols must not ask for more.
"""

import platform
import re
import subprocess
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

OLDEST_GLIBC = (2, 28)


class WheelTag(BuildHookInterface):
    def initialize(self, version, build_data):
        library = Path(self.root, "src/odfork/lib/libodfork.so")
        if not library.exists():
            return
        build_data["pure_python"] = False
        if newest_symbol(library) > OLDEST_GLIBC:
            raise RuntimeError(f"{library} asks for symbols newer than glibc {OLDEST_GLIBC}")
        glibc = "{}_{}".format(*OLDEST_GLIBC)
        build_data["tag"] = f"py3-none-manylinux_{glibc}_{platform.machine()}"


def newest_symbol(library):
    """The glibc that a library's symbols ask for."""
    symbols = subprocess.run(
        ["objdump", "-T", str(library)], check=True, capture_output=True, text=True
    ).stdout
    found = re.findall(r"GLIBC_(\d+)\.(\d+)", symbols)
    return max((int(a), int(b)) for a, b in found)
