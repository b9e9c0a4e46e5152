"""Refuses, in one line and before any work, a release of PyIceberg that lacks what we use or behaves differently, and a
configuration that it cannot read."""

from __future__ import annotations

import contextlib
import traceback
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
    """Turn import errors into one line: PyIceberg is missing, or a module or name of it is.

    PyIceberg reads its configuration when it is imported.
    """
    try:
        with missing.importing("pyiceberg"):
            yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "pyiceberg":
            raise
        raise unfit(text_of(error)) from error
    except Exception as error:
        steps = traceback.walk_tb(error.__traceback__)
        if not any(frame.f_globals.get("__name__") == "pyiceberg.utils.config" for frame, _ in steps):
            raise
        raise InputError(
            "PyIceberg cannot read its configuration, .pyiceberg.yaml in PYICEBERG_HOME, the home folder or this one: "
            f"{text_of(error)}"
        ) from error
