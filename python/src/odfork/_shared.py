"""The fixtures that several tests share: all but those of function scope."""

from typing import Any, Dict

import pytest


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
        for name in _definitions(item):
            item._request._get_active_fixturedef(name)
    finally:
        del state.stack[item]


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
    )


def _definitions(item: Any) -> Dict[str, Any]:
    known = item._fixtureinfo.name2fixturedefs
    found = {name: known[name][-1] for name in item.fixturenames if known.get(name)}
    return {name: made for name, made in found.items() if made.scope != "function"}


def _parameter(item: Any, name: str) -> Any:
    return item.callspec.indices.get(name) if hasattr(item, "callspec") else None
