"""Arrow's functions, imported when one is called: `from deltacompact.base import compute as pc`.

import pyarrow.compute     makes 300 functions, in two fifths of the CPU of what `show` says of expected seconds
show, plan                 call none of them on most tables
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    import pyarrow.compute

    function = globals()[name] = getattr(pyarrow.compute, name)
    return function
