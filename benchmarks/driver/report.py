"""What the simulations show: a table a line a session, and the efficiency by slots as an SVG beside the paper's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import matplotlib

matplotlib.use("agg")
from matplotlib import pyplot as plt

from benchmarks.driver.measuring import Measured

PAPER_MIB_S_CORE = {352: 91.0, 3_520: 353 * 2**20 / 3600 / 3_520, 8_000: 1_300 * 2**20 / 3600 / 8_000}
"""Decompressed input a second and vCPU: 20 TiB, 1.05 PiB in rounds, 117 TiB."""


def table(sessions: Sequence[Measured]) -> str:
    """The sessions as Markdown."""
    lines = [
        "| files | buckets | slots | rounds | tasks | session, s | efficiency | driver, CPU s | of the session "
        "| Ray's besides, s | memory, MiB | objects | arguments | told, MB | written | MB | nodes lost | tasks again |",
        "|" + "---:|" * 18,
    ]
    return "\n".join([*lines, *map(_line, sessions)]) + "\n"


def _line(of: Measured) -> str:
    if of.error is not None:
        return f"| {of.files:,} | {of.hash_buckets:,} | {of.slots:,} | {of.error} |"
    values = (
        f"{of.files:,}", f"{of.hash_buckets:,}", f"{of.slots:,}", f"{of.rounds}", f"{of.tasks:,}",
        f"{of.virtual_s:,.0f}", f"{of.efficiency:.0%}", f"{of.driver_s:.1f}", f"{of.share:.2%}", f"{of.ray_s:,.0f}",
        f"{of.peak_bytes / 2**20:,.0f}", f"{of.objects:,}", f"{of.arguments:,}", f"{of.handed_bytes / 1e6:,.0f}",
        f"{of.written:,}",
        f"{of.written_bytes / 1e6:,.0f}", f"{of.nodes_lost}", f"{of.tasks_repeated:,}",
    )  # fmt: skip
    return f"| {' | '.join(values)} |"


def write(sessions: Sequence[Measured], out: Path) -> str:
    """Write driver.md, driver.json and efficiency.svg; returns the table."""
    text = table(sessions)
    (out / "driver.md").write_text(text)
    (out / "driver.json").write_text(json.dumps([asdict(session) for session in sessions], indent=1))
    _draw([session for session in sessions if session.error is None], out / "efficiency.svg")
    return text


def _draw(sessions: Sequence[Measured], path: Path) -> None:
    """The paper tells of no efficiency: its rates for each vCPU are drawn as shares of the best."""
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    ordered = sorted((session.slots, session.efficiency) for session in sessions)
    axes.plot(*zip(*ordered, strict=True), marker="o", color="#1f6fb4", label="simulated: task seconds / slot seconds")
    best = max(PAPER_MIB_S_CORE.values())
    shares = [rate / best for rate in PAPER_MIB_S_CORE.values()]
    axes.plot([*PAPER_MIB_S_CORE], shares, "s", color="#d9a441", label="paper: MiB/s a vCPU, share of its best")
    axes.set_xscale("log")
    axes.set_ylim(0, 1.05)
    axes.set_xlabel("slots")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
