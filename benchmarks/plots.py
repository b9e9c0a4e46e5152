"""Ratios to the floor as bars; for each configuration, seconds by stage and memory. One plot for a sweep of shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")
from matplotlib import pyplot as plt

from benchmarks.bars import bars_svg, measured
from benchmarks.summary import Line

_FLOOR, _OURS = "#9a9a9a", "#1f6fb4"


@dataclass(frozen=True, slots=True)
class Plot:
    """A picture beside the report."""

    title: str
    file: str


def draw_all(lines: Sequence[Line], out: Path) -> list[Plot]:
    """Draw what there is something to show for."""
    plots = _bars(lines, out)
    for configuration in dict.fromkeys(line.configuration for line in lines):
        mine = [line for line in lines if line.configuration == configuration and line.seconds is not None]
        for name, title, draw, shown in (
            ("stages", "seconds by stage", _stages, [line for line in mine if line.stages_s]),
            ("memory", "peak memory (USS), GB", _memory, mine),
        ):
            if shown:
                plot = Plot(f"{configuration}: {title}", f"{configuration}-{name}.png")
                figure, axes = plt.subplots(figsize=(9, 1 + 0.36 * len(shown)), layout="constrained")
                draw(axes, shown)
                plots.append(_saved(plot, figure, axes, out))
    return plots


def _bars(lines: Sequence[Line], out: Path) -> list[Plot]:
    panels = measured(lines)
    if not panels:
        return []
    plot = Plot("time, as a multiple of the floor", "ratios.svg")
    (out / plot.file).write_text(bars_svg(plot.title, panels))
    return [plot]


def draw_sweep(lines: Sequence[Line], shares: Mapping[str, float], out: Path) -> list[Plot]:
    """One line a competitor, over the shares of changed rows, which are known by the name of their configuration."""
    plot = Plot("time, as a multiple of the floor, by the share of changed rows", "sweep-ratio.png")
    figure, axes = plt.subplots(figsize=(9, 5), layout="constrained")
    for competitor in dict.fromkeys(line.competitor for line in lines):
        points = [
            (shares[line.configuration], line.ratio) for line in lines if line.competitor == competitor and line.ratio
        ]
        if points:
            x, y = zip(*sorted(points), strict=True)
            axes.plot(x, y, marker="o", label=competitor, color=_FLOOR if competitor == "floor" else None)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("changed rows, share of the table's")
    axes.set_ylabel("x floor")
    axes.legend(frameon=False)
    return [_saved(plot, figure, axes, out)]


def _saved(plot: Plot, figure: Any, axes: Any, out: Path) -> Plot:
    axes.set_title(plot.title, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(out / plot.file, dpi=120)
    plt.close(figure)
    return plot


def _stages(axes: Any, lines: Sequence[Line]) -> None:
    places, left = _places(axes, lines), [0.0] * len(lines)
    for stage in dict.fromkeys(stage for line in lines for stage in line.stages_s or {}):
        widths = [(line.stages_s or {}).get(stage, 0.0) for line in lines]
        axes.barh(places, widths, left=left, label=stage)
        left = [at + width for at, width in zip(left, widths, strict=True)]
    axes.legend(frameon=False, ncols=3, loc="lower right", bbox_to_anchor=(1, 1), fontsize="small")
    axes.set_xlabel("seconds")


def _memory(axes: Any, lines: Sequence[Line]) -> None:
    places = _places(axes, lines)
    gigabytes = [((line.peak_process_bytes or 0) / 1e9, (line.peak_tree_bytes or 0) / 1e9) for line in lines]
    axes.barh(places, [tree for _, tree in gigabytes], color="#c9d7e6", label="all processes")
    axes.barh(places, [largest for largest, _ in gigabytes], height=0.4, color=_OURS, label="largest process")
    axes.legend(frameon=False, fontsize="small")
    axes.set_xlabel("GB")


def _places(axes: Any, lines: Sequence[Line]) -> list[int]:
    """The places of the bars, from top to bottom, with the case and the competitor as names."""
    places = list(range(len(lines)))
    axes.set_yticks(places, [f"{line.case}: {line.competitor}" for line in lines])
    axes.invert_yaxis()
    return places
