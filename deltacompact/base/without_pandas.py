"""Keeps our own programs from importing pandas, which pyarrow would do.

    pyarrow.array([1])     asks whether its argument is a pandas object: imports pandas, 0.2 to 0.4 s of CPU a process
    forgo_pandas()         in a process of our own, which has no frames: this import fails at once
    allow_pandas()         before an import of PySpark, which needs pandas

Processes of users keep pandas: there `append` takes frames, and users run tasks of their own. So do processes that
import a user's main program, as those of a fork server do.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType


class _NoPandas:
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        """Raises for pandas. Returning None would mean: look elsewhere."""
        if name == "pandas":
            raise ModuleNotFoundError("this process does without pandas", name=name)


def forgo_pandas() -> None:
    """From now on `import pandas` raises ModuleNotFoundError in this process, unless it has been imported before."""
    sys.meta_path.insert(0, _NoPandas())


def allow_pandas() -> None:
    """From now on `import pandas` works as usual: PySpark asks for it."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _NoPandas)]
