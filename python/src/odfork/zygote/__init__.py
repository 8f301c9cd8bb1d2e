"""A zygote: a warm process (the template) that hands out ready children.

    with odfork.Zygote(imports=["numpy", "pandas"]) as zygote:
        print(zygote.call(sum, [1, 2, 3]))
        child = zygote.start(work, args=(1,), stdout=subprocess.PIPE)
        out, _ = child.communicate()

The template is executed, so it has one thread and nothing of this process. It imports, sets up,
collects garbage and freezes its memory; each child is a fork of it. Children end with the client
or the template, whichever ends first, unless they are `detached`.
"""

from .client import Zygote
from .handle import Child, ZygoteError

__all__ = ["Child", "Zygote", "ZygoteError"]
