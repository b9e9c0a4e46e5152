"""Pictures of a table, as SVG: the only door to matplotlib.

check --health --plot health.svg    file sizes · dead rows by partition · what waits by partition, with the thresholds
plan --plot plan.svg                files and bytes by partition, before and after
advise --plot boxes.svg             the range of each file in two columns · by column, how many files hold a value

In Python, `check`, `plan` and `advise` of a table take `plot="health.svg"`. Where no file is named, nothing is drawn,
and matplotlib is not imported.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from deltacompact.base.errors import InputError
from deltacompact.base.missing import importing
from deltacompact.base.printable import LINES, named, printable
from deltacompact.base.thresholds import Thresholds
from deltacompact.base.wording import counted
from deltacompact.layout.depth import depths_of
from deltacompact.maintenance.health import thresholds_of
from deltacompact.reports.words import clipped
from deltacompact.storage.identity import is_uri

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from deltacompact.iceberg_modes.totals import BranchTotals
    from deltacompact.layout.advice import Advice
    from deltacompact.layout.boxes import Boxes
    from deltacompact.reports.health import TableHealth
    from deltacompact.reports.words import Report

_OURS, _BEFORE, _LIMIT = "#1f6fb4", "#b8b8b8", "#c0392b"
_NAMED_MAX = 30
"""So many partitions have their names in a picture."""
_BOXES_MAX = 2_000
"""So many boxes are drawn, evenly chosen."""
_MIB = 1 << 20


@functools.cache
def _matplotlib() -> Any:
    with importing("matplotlib"):
        import matplotlib  # before its submodule, so that the error names the package
        import matplotlib.figure
    matplotlib.use("svg")
    return matplotlib


def draw_health(path: str | None, health: TableHealth) -> None:
    """File sizes, dead rows and what waits. Raises InputError for a file that is no .svg, or cannot be written."""
    if path is None:
        return
    found, limits = health.partitions, health.thresholds
    figure, (sizes, dead, waiting) = _figure(f"{health.table_id}: {counted(len(found), 'partition')}", 3)
    _sizes(
        sizes,
        [size / _MIB for of_partition in found for size in of_partition.file_bytes],
        limits.small_file_bytes / _MIB,
    )
    names = [named(of_partition.partition) for of_partition in found]
    _bars(dead, [[100 * of_partition.dead_share for of_partition in found]], "% dead rows", 100 * limits.dead_share)
    _bars(waiting, [[of_partition.overlap for of_partition in found]], "files over the others", limits.overlap)
    _name(waiting, names)
    _save(figure, path)


def health_asked(health: bool | Thresholds, plot: str | None, look: Callable[[Thresholds], TableHealth]) -> TableHealth:
    """What `check(health=…, plot=…)` of any table answers. Raises InputError."""
    found = look(thresholds_of(health))
    draw_health(plot, found)
    return found


def draw_plans(path: str | None, shown: Report) -> None:
    """Files and bytes of a report of `plan` by partition, before and after."""
    planned = [report for report in shown.document if "why" in report]
    rows = [
        (
            named(report["partition"]),
            {
                "files": (report["files_before"], report["files_after"]),
                "MiB": (report["bytes_before"] / _MIB, report["bytes_after"] / _MIB),
            },
        )
        for report in planned
    ]
    draw_plan(path, f"{shown.total.table}: {counted(len(planned), 'partition')} to compact", rows)


def draw_branch_plan(path: str | None, table: str, before: BranchTotals, after: BranchTotals) -> None:
    """Data files, bytes and delete files of a branch of an Iceberg table, before a plan is carried out and after."""
    sides = {
        "data files": (before.data_files, after.data_files),
        "MiB": (before.data_bytes / _MIB, after.data_bytes / _MIB),
        "delete files": (before.delete_files, after.delete_files),
    }
    draw_plan(path, table, [(table, sides)])


def draw_plan(path: str | None, title: str, rows: Sequence[tuple[str, dict[str, tuple[float, float]]]]) -> None:
    """What there is before and after, by measure, of each name. All have the same measures."""
    if path is None:
        return
    measures = list(rows[0][1]) if rows else []
    figure, panels = _figure(title, max(1, len(measures)))
    for panel, measure in zip(panels, measures, strict=False):
        _bars(panel, [[values[measure][side] for _, values in rows] for side in (0, 1)], measure)
    _name(panels[-1], [name for name, _ in rows])
    _save(figure, path)


def draw_boxes(path: str | None, advice: Advice) -> None:
    """The boxes of files in the first two columns, and the depth along each. Places are ranks, not values.

    Raises InputError where there are none: no columns were named, or no file has bounds of them.
    """
    if path is None:
        return
    if (boxes := advice.boxes) is None:
        raise InputError(f"plot {path}: there is nothing to draw, files have no bounds of columns that were named")
    figure, (plane, *depths) = _figure(f"{advice.table_id}: {counted(boxes.files, 'file')}", 1 + len(boxes.columns))
    _planes(plane, boxes)
    for place, (panel, name) in enumerate(zip(depths, boxes.columns, strict=True)):
        panel.stairs(depths_of(boxes.of(place)).tolist(), fill=True, color=_OURS)
        panel.set(xlabel=_literal(name), ylabel="files that hold it", xticks=[], ylim=(0, None))
    _save(figure, path)


def _planes(panel: Axes, boxes: Boxes) -> None:
    """A rectangle for each file, or, of one column, a line for each in the order in which they begin."""
    drawn = boxes.take(np.linspace(0, boxes.files - 1, min(boxes.files, _BOXES_MAX)).astype(np.int64))
    sides = [(drawn.low[place], drawn.high[place] + 1) for place in range(min(2, len(drawn.columns)))]
    if len(sides) == 1:
        order = np.lexsort((drawn.high[0], drawn.low[0]))
        ends = np.empty(drawn.files, np.int64)
        ends[order] = np.arange(drawn.files)
        sides.append((ends, ends + 1))
    (left, right), (bottom, top) = sides
    panel.bar(left, top - bottom, right - left, bottom, align="edge", color=_OURS, alpha=0.25, edgecolor=_OURS)
    names = [_literal(name) for name in (*drawn.columns, "files")][:2]
    panel.set(xlabel=names[0], ylabel=names[1], xticks=[], yticks=[])


def _figure(title: str, panels: int) -> tuple[Figure, Sequence[Axes]]:
    figure: Figure = _matplotlib().figure.Figure(figsize=(9, 2.6 * panels + 0.6), layout="constrained")
    figure.suptitle(_literal(title))
    axes: Any = figure.subplots(panels, squeeze=False)
    return figure, axes[:, 0]


def _sizes(panel: Axes, sizes: Sequence[float], small: float) -> None:
    """How many files there are of each size, in powers of two."""
    least, most = min([*sizes, small]), max([*sizes, small])
    first, last = math.floor(math.log2(max(least, 1 / _MIB))), math.ceil(math.log2(max(most, 1 / _MIB)))
    panel.hist(sizes, bins=[2.0**power for power in range(first, last + 2)], color=_OURS)
    panel.set_xscale("log", base=2)
    panel.axvline(small, color=_LIMIT, linestyle="--")
    panel.set(xlabel="MiB of a data file", ylabel="files")


def _bars(panel: Axes, series: Sequence[Sequence[float]], measure: str, limit: float | None = None) -> None:
    """Bars by partition: one series, or what is before and after. A threshold far above them is only told.

    Of many partitions, each panel begins with the largest.
    """
    width, many = 0.8 / len(series), len(series[0]) > _NAMED_MAX
    order = sorted(range(len(series[0])), key=lambda place: series[0][place], reverse=many) if many else None
    colors, labels = ((_OURS,), (None,)) if len(series) == 1 else ((_BEFORE, _OURS), ("before", "after"))
    for number, (values, color, label) in enumerate(zip(series, colors, labels, strict=True)):
        if order is not None:
            panel.stairs([values[place] for place in order], fill=True, color=color, alpha=0.7, label=label)
            continue
        places = [place + (number - (len(series) - 1) / 2) * width for place in range(len(values))]
        panel.bar(places, values, width=width, color=color, label=label)
    panel.set(ylabel=measure if limit is None else f"{measure}\n(at most {limit:g})", xticks=[], ylim=(0, None))
    if limit is not None and max(series[0], default=0) > limit / 4:
        panel.axhline(limit, color=_LIMIT, linestyle="--")
    if len(series) > 1:
        panel.legend(frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1, 1))


def _name(panel: Axes, names: Sequence[str]) -> None:
    """Names below the last panel, where there is room for them."""
    if len(names) <= _NAMED_MAX:
        panel.set_xticks(range(len(names)), [_literal(clipped(name, 24)) for name in names], rotation=45, ha="right")
    else:
        panel.set_xlabel("partitions, the largest first")


def _literal(text: str) -> str:
    """A name as text: between dollars, matplotlib would read mathematics."""
    return printable(text, LINES).replace("$", r"\$")


def _save(figure: Figure, path: str) -> None:
    if not path.lower().endswith(".svg"):
        raise InputError(f"plot {path}: name an .svg file")
    if is_uri(path) or path.startswith("file:"):
        raise InputError(f"plot {path}: name a local path, not a URI")
    try:
        with warnings.catch_warnings(), _matplotlib().rc_context({"svg.fonttype": "none"}):
            warnings.simplefilter("ignore")  # letters that the font lacks: the viewer has them
            figure.savefig(Path(path), format="svg", metadata={"Date": None})
    except OSError as error:
        raise InputError(f"plot {path} cannot be written: {error.strerror}") from None
