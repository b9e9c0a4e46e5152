"""What every command of the benchmarks needs of the machine it runs on: a folder, and somebody to tell."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

_FOLDER = Path(tempfile.gettempdir()) / "deltacompact-benchmarks"


def made(folder: Path | None, name: str) -> Path:
    """The folder, or one of this name in a temporary one; it is there afterwards."""
    chosen = (folder or _FOLDER / name).absolute()
    chosen.mkdir(parents=True, exist_ok=True)
    return chosen


def teller() -> Callable[[str], None]:
    """Progress goes to stderr, line by line."""
    progress = Console(stderr=True)
    return lambda text: progress.print(text, style="dim", markup=False, highlight=False, soft_wrap=True)
