"""The sources of a Debian package, by apt-get source, kept below target/suites."""

import glob
import os
import re
import shutil
import subprocess
import tempfile

KEPT = os.path.abspath("target/suites")


def fetch(package):
    """(folder, None) with its unpacked sources, or (None, why not)."""
    folder = os.path.join(KEPT, package)
    if os.path.isdir(folder):
        return folder, None
    for program in ("apt-get", "dpkg-source"):
        if not shutil.which(program):
            return None, f"no {program} here; install the Debian package dpkg-dev"
    os.makedirs(KEPT, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="odfork-suites.") as work:
        options = private_lists(work)
        subprocess.run(["apt-get", *options, "update"], stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, check=False)
        shown = subprocess.run(["apt-cache", *options, "showsrc", package], text=True,
                               capture_output=True, check=False).stdout
        # Any version will do, stock is compared with itself; not all may still be there.
        for version in dict.fromkeys(reversed(re.findall(r"^Version: (.*)$", shown, re.M))):
            got = subprocess.run(["apt-get", *options, "source", f"{package}={version}"], cwd=work,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
            unpacked = [path for path in glob.glob(f"{work}/*-*/") if "lists" not in path]
            if got.returncode == 0 and unpacked:
                shutil.move(unpacked[0], folder)
                return folder, None
    return None, f"apt-get source {package}: its sources cannot be had here"


def private_lists(work):
    """Options of apt with the machine's own sources, read as those of source packages."""
    os.makedirs(f"{work}/parts")
    os.makedirs(f"{work}/lists/partial")
    files = glob.glob("/etc/apt/sources.list.d/*") + ["/etc/apt/sources.list"]
    for path in filter(os.path.isfile, files):
        with open(path) as file:
            text = file.read()
        text = re.sub(r"^Types:.*$", "Types: deb-src", text, flags=re.M)
        text = re.sub(r"^deb\s", "deb-src ", text, flags=re.M)
        with open(f"{work}/parts/{os.path.basename(path)}", "w") as file:
            file.write(text)
    settings = {"Dir::Etc::sourcelist": "/dev/null", "Dir::Etc::sourceparts": f"{work}/parts",
                "Dir::State::lists": f"{work}/lists", "APT::Sandbox::User": "root"}
    return ["-q", *(f"-o{name}={value}" for name, value in settings.items())]
