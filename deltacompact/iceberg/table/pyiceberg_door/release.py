"""Refuses a release of PyIceberg that lacks what we use, or behaves otherwise: one line, before any work."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from deltacompact.base import missing
from deltacompact.base.errors import InputError
from deltacompact.base.wording import text_of


def unfit(why: str) -> InputError:
    """What is said of the installed release."""
    from importlib.metadata import version

    return InputError(
        f"PyIceberg {version('pyiceberg')} does not behave as deltacompact needs: {why}. "
        "Install a release that deltacompact's pyproject.toml allows"
    )


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """A module or a name of PyIceberg that is gone is told in one line, and so is PyIceberg itself."""
    try:
        with missing.importing("pyiceberg"):
            yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "pyiceberg":
            raise
        raise unfit(text_of(error)) from error
