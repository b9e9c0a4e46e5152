"""Refuses, in one line and before any work, a release of PyIceberg that lacks what we use or behaves differently."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from deltacompact.base import missing
from deltacompact.base.errors import InputError
from deltacompact.base.wording import text_of


def unfit(why: str) -> InputError:
    """The error about the installed release of PyIceberg."""
    from importlib.metadata import version

    return InputError(
        f"PyIceberg {version('pyiceberg')} does not behave as deltacompact needs: {why}. "
        "Install a release that deltacompact's pyproject.toml allows"
    )


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Turn import errors into one line: PyIceberg is missing, or a module or name of it is."""
    try:
        with missing.importing("pyiceberg"):
            yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "pyiceberg":
            raise
        raise unfit(text_of(error)) from error
