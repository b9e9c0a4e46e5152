"""Reports without a terminal, as text.

printed(lambda out: print_table(out, shown, Detail()))      the lines that `show` prints
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def printed(print_: Callable[[Console], None]) -> str:
    """What is printed, without colours, and without the last line break."""
    from rich.console import Console

    said = io.StringIO()
    print_(Console(file=said, color_system=None, highlight=False, markup=False, emoji=False, soft_wrap=True))
    return said.getvalue().removesuffix("\n")
