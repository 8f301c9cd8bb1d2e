"""The fixtures that several tests share: all but those of function scope, and those with threads.

A thread ends at a fork: a server that a fixture of the session has started would serve the parent.
Such a fixture is ended again as soon as that is known, and made in each child that asks for it.
"""

import threading
from typing import Any, Dict, Set

import pytest

threaded: Dict[Any, str] = {}  # the fixtures that are not shared: their names


def setup(item: Any) -> None:
    """Sets up the collectors of a test and its shared fixtures."""
    state = item.session._setupstate
    state.setup(item.parent)
    if not getattr(item, "_request", None):
        if not hasattr(item, "_initrequest"):
            return
        item._initrequest()
    state.stack[item] = ([], None)  # while its fixtures are made, the test counts as set up
    try:
        definitions = _definitions(item)
        for name in definitions:
            _make(item, name, definitions)
    finally:
        del state.stack[item]


def _make(item: Any, name: str, definitions: Dict[str, Any]) -> None:
    """Sets up a fixture, those it needs first, so that each one's threads are its own."""
    made = definitions[name]
    for needed in made.argnames:
        if needed != name and needed in definitions:
            _make(item, needed, definitions)
    if made in threaded:
        return
    if any(definitions.get(needed) in threaded for needed in made.argnames):
        threaded[made] = name
        return
    before = _threads()
    item._request._get_active_fixturedef(name)
    if not _threads() <= before:
        threaded[made] = name
        made.finish(item._request)
        item._initrequest()  # the request takes it for made


def _threads() -> Set[Any]:
    """Those that Python knows. One that shows progress is missed by nobody."""
    return {t for t in threading.enumerate() if not type(t).__module__.startswith("tqdm.")}


def teardown(item: Any, nextitem: Any) -> None:
    item.session._setupstate.teardown_exact(nextitem)


def same(item: Any, nextitem: Any) -> bool:
    """Whether the next test needs what is set up for this one, and nothing else."""
    if nextitem is None or nextitem.parent is not item.parent:
        return False
    if not isinstance(item, pytest.Function) or not isinstance(nextitem, pytest.Function):
        return False
    return all(
        made.cached_result is not None
        and made.cached_result[2] is None
        and _parameter(item, name) == _parameter(nextitem, name)
        for name, made in _definitions(nextitem).items()
        if made not in threaded
    )


def _definitions(item: Any) -> Dict[str, Any]:
    known = item._fixtureinfo.name2fixturedefs
    found = {name: known[name][-1] for name in item.fixturenames if known.get(name)}
    return {name: made for name, made in found.items() if made.scope != "function"}


def _parameter(item: Any, name: str) -> Any:
    return item.callspec.indices.get(name) if hasattr(item, "callspec") else None
