"""What the checks of docs/servers.md and of examples/container share."""

import time

# What a server with threads comes to, in the words of `odfork stats`.
FROZEN = "memory is in a backing file"


def until(is_so):
    """What it answers, as soon as that is something; an error after two minutes."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        found = is_so()
        if found:
            return found
        time.sleep(0.05)
    raise RuntimeError("waited too long")
