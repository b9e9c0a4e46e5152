"""A library that is not installed is told in one line, with the command that installs it.

import pyspark     InputError: pyspark is not installed: pip install 'deltacompact[spark]'
import ray         InputError: ray is not installed: pip install deltacompact
import polars      InputError: polars is not installed: pip install polars

Ray, PyIceberg, boto3 and obstore come with deltacompact, but none is imported before it is needed: where one is
missing, everything else works. The doors to them say so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from deltacompact.base.errors import InputError

_EXTRAS = {"matplotlib": "plot", "openlineage": "openlineage", "opentelemetry": "opentelemetry", "pyspark": "spark"}
_BY_THEMSELVES = ("duckdb", "polars")
"""What users bring, if they want our rows in it."""


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
    """The line for a package that this extra brings, or (None) deltacompact itself."""
    what = f"'deltacompact[{extra}]'" if extra else package if package in _BY_THEMSELVES else "deltacompact"
    return InputError(f"{package} is not installed: pip install {what}")
