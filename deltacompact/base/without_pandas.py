"""Programs of ours do without pandas, which pyarrow would import.

    pyarrow.array([1])     looks whether its argument is of pandas: imports pandas, 0.2 to 0.4 s of CPU a process
    forgo_pandas()         in a process of our own, where nobody has a frame: the look finds nothing
    allow_pandas()         before PySpark is imported, which needs it

Nothing is done in a process of somebody else: there `append` takes frames, and users have tasks of their own. Nor in
processes that import the main program of somebody else, as those of a fork server do.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType


class _NoPandas:
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        """Raises where others return None, which would mean: look elsewhere."""
        if name == "pandas":
            raise ModuleNotFoundError("this process does without pandas", name=name)


def forgo_pandas() -> None:
    """From now on `import pandas` raises ModuleNotFoundError in this process, unless it has been imported before."""
    sys.meta_path.insert(0, _NoPandas())


def allow_pandas() -> None:
    """From now on `import pandas` works as usual: PySpark asks for it."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _NoPandas)]
