"""python -m odfork [OPTIONS] script.py|-m module|-c code ...

Starts this interpreter with libodfork.so preloaded. Options of odfork come first: --freeze
auto|eager|never, --image auto|huge|small, --stats text|json. Everything else is the interpreter's.
`python -m odfork` alone says whether the library can help here.
"""

import os
import sys

from . import _start

OPTIONS = {
    "--freeze": ("auto", "eager", "never"),
    "--stats": ("text", "json"),
    "--image": ("auto", "huge", "small"),
}


def main() -> int:
    arguments = sys.argv[1:]
    env = dict(os.environ)
    while arguments and arguments[0].split("=")[0] in OPTIONS:
        name, given, value = arguments.pop(0).partition("=")
        if not given and not arguments:
            print(f"odfork: {name} needs a value", file=sys.stderr)
            return 2
        value = value if given else arguments.pop(0)
        if value not in OPTIONS[name]:
            print(f"odfork: {name} is {' or '.join(OPTIONS[name])}, not {value!r}", file=sys.stderr)
            return 2
        env[f"ODFORK_{name[2:].upper()}"] = value
    if arguments and arguments[0] in ("-h", "--help"):
        print(__doc__)
        return 0
    if not arguments:
        why = _start.preloaded(env)[1]
        print(f"odfork: {why}" if why else "odfork: libodfork.so can be loaded here")
        return 1 if why else 0
    _start.interpreter(arguments, env)


if __name__ == "__main__":
    sys.exit(main())
