"""The environment of processes that this one starts."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping


@contextlib.contextmanager
def environment_of_children(added: Mapping[str, str]) -> Iterator[None]:
    """Set variables for the processes that the block starts. A variable that is set already keeps its value."""
    missing = {name: value for name, value in added.items() if name not in os.environ}
    os.environ.update(missing)
    try:
        yield
    finally:
        for name in missing:
            del os.environ[name]
