import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))
pytest_plugins = ["pytester"]


def descriptors():
    found = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            found[fd] = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:  # the folder itself
            pass
    return found


@pytest.fixture(autouse=True)
def nothing_left():
    """Every test gives back its descriptors and its processes."""
    before = descriptors()
    yield
    import gc

    gc.collect()
    assert descriptors() == before
