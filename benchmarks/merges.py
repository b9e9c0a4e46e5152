"""The tables of duckrun's suite, against delta-rs. The floor is left to the report.

| CPU seconds (x delta-rs) | upsert | insert | … |
|---|---:|---:|---:|
| deltacompact marked | 0.31 (0.08) | 0.43 (0.16) | … |
| delta-rs merge | 3.83 | 2.63 | … |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks import formats
from benchmarks.configurations import Case
from benchmarks.grids import Grid, markdown_table
from benchmarks.summary import Line

BEGIN, END = "<!-- duckrun: written by `python -m benchmarks duckrun --readme` -->", "<!-- /duckrun -->"
RIVAL = "delta-rs merge"
_CASES = (Case.UPSERT, Case.INSERT, Case.UPDATE, Case.AGAIN, Case.CDC, Case.SYNC)
_SHOWN: tuple[tuple[str, Callable[[Line], float | None], Callable[[float], str]], ...] = (
    ("CPU seconds (x delta-rs)", lambda line: line.cpu_s, lambda seconds: f"{seconds:.3g}"),
    ("largest process, MB (x delta-rs)", lambda line: line.peak_process_bytes, formats.megabytes),
)


def tables(lines: Sequence[Line]) -> str:
    """CPU seconds, and the memory of the largest process, by contender and case."""
    return "\n".join(markdown_table(*_grid(lines, *shown)) for shown in _SHOWN).rstrip()


def _grid(
    lines: Sequence[Line], title: str, value: Callable[[Line], float | None], text: Callable[[float], str]
) -> Grid:
    found = {(line.competitor, line.case): value(line) for line in lines}
    cases = [case for case in _CASES if any(line.case == case for line in lines)]
    competitors = dict.fromkeys(line.competitor for line in lines if line.competitor != "floor")

    def row(name: str) -> list[str]:
        rivals = [found.get((RIVAL, case)) if name != RIVAL else None for case in cases]
        return [name, *(_cell(found.get((name, case)), rival, text) for case, rival in zip(cases, rivals, strict=True))]

    return [title, *cases], [row(name) for name in sorted(competitors, key=_order)]


def _order(name: str) -> bool:
    """Ours first."""
    return not name.startswith("deltacompact")


def _cell(value: float | None, rival: float | None, text: Callable[[float], str]) -> str:
    if value is None:
        return formats.NONE
    return f"{text(value)} ({value / rival:.2f})" if rival else text(value)
