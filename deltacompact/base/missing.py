"""Says in one line that a library is not installed, with the command that installs it.

import pyspark     InputError: pyspark is not installed: pip install 'deltacompact[spark]'
import ray         InputError: ray is not installed: pip install deltacompact
import polars      InputError: polars is not installed: pip install polars

Ray, PyIceberg, boto3 and obstore come with deltacompact, but each is imported when it is first needed: where one is
missing, everything else works. The module that imports a library raises this error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from deltacompact.base.errors import InputError

_EXTRAS = {"matplotlib": "plot", "openlineage": "openlineage", "opentelemetry": "opentelemetry", "pyspark": "spark"}
_USER_INSTALLED = ("duckdb", "polars")
"""Libraries that users install themselves, to have our rows as frames or relations of these."""


@contextlib.contextmanager
def importing(*packages: str) -> Iterator[None]:
    """Around the imports of a door: raises InputError if one of these packages is not there."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in packages:  # a package without one of its modules, or another library
            raise
        raise not_installed(error.name, _EXTRAS.get(error.name)) from error


def not_installed(package: str, extra: str | None) -> InputError:
    """The error for a missing package. `extra` is the extra that installs it; None: no extra is needed."""
    what = f"'deltacompact[{extra}]'" if extra else package if package in _USER_INSTALLED else "deltacompact"
    return InputError(f"{package} is not installed: pip install {what}")
