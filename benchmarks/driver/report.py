"""What the simulations show: a table a line a session, and the efficiency by slots as an SVG beside the paper's."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.bars import bars_svg
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
    (out / "efficiency.svg").write_text(picture_of(sessions))
    return text


def picture_of(sessions: Sequence[Measured]) -> str:
    """The efficiency by slots. The paper tells of none: its rates for each vCPU are drawn as shares of the best."""
    best = max(PAPER_MIB_S_CORE.values())
    simulated = {session.slots: session.efficiency for session in sessions if session.error is None}
    panels = {
        "deltacompact, simulated: seconds of tasks / of slots": _bars("deltacompact", simulated),
        "flash compactor: MiB/s of a vCPU / of its best": _bars(
            "paper", {slots: rate / best for slots, rate in PAPER_MIB_S_CORE.items()}
        ),
    }
    return bars_svg("Efficiency by slots: more is better", panels)


def _bars(name: str, by_slots: Mapping[int, float]) -> list[tuple[str, float]]:
    return [(f"{name}, {slots:,} slots", share) for slots, share in sorted(by_slots.items())]
