"""From measurements to one line for each competitor: medians of the repeats.

The ratio to the floor is taken within a repeat, where both ran one after the other, and then its median: the
machine may drift from one repeat to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.runner import Measurement


@dataclass(frozen=True, slots=True)
class Line:
    """One competitor in one case. None where it failed, or where the floor did."""

    configuration: str
    case: str
    competitor: str
    repeats: int
    failed: int
    correct: bool | None
    seconds: float | None = None
    seconds_min: float | None = None
    seconds_max: float | None = None
    ratio: float | None = None
    cpu_s: float | None = None
    cpu_ratio: float | None = None
    rows_per_second: float | None = None
    peak_process_bytes: int | None = None
    peak_process_name: str = ""
    peak_tree_bytes: int | None = None
    idle_tree_bytes: int | None = None
    peak_temporary_bytes: int | None = None
    output_bytes: int | None = None
    output_ratio: float | None = None
    written_bytes: int | None = None
    startup_s: float | None = None
    scheduling_share: float | None = None
    planned_peak_bytes: int | None = None
    measured_peak_bytes: int | None = None
    stages_s: dict[str, float] | None = None
    error: str | None = None


def summarise(measurements: Sequence[Measurement]) -> list[Line]:
    """In the order in which they first ran."""
    places = dict.fromkeys((m.configuration, m.case, m.competitor) for m in measurements)
    return [_line(*place, measurements) for place in places]


def _line(configuration: str, case: str, competitor: str, measurements: Iterable[Measurement]) -> Line:
    same_case = [m for m in measurements if (m.configuration, m.case) == (configuration, case)]
    all_ = [m for m in same_case if m.competitor == competitor]
    good = [m for m in all_ if m.error is None]
    floors = {m.repeat: m for m in same_case if m.competitor == "floor" and m.error is None}
    failed = len(all_) - len(good)
    errors = [m.error for m in all_ if m.error]
    verdicts = [m.correct for m in all_ if m.correct is not None]
    correct = all(verdicts) if verdicts else None
    if not good:
        return Line(configuration, case, competitor, len(all_), failed, correct, error=errors[0])

    def middle(value: Callable[[Measurement], float]) -> float:
        return median(map(value, good))

    def against_floor(value: Callable[[Measurement], float]) -> float | None:
        ratios = [value(m) / value(floors[m.repeat]) for m in good if m.repeat in floors and value(floors[m.repeat])]
        return median(ratios) if ratios else None

    def detail(name: str) -> Any:
        found = [m.details[name] for m in good if m.details.get(name) is not None]
        return median(found) if found else None

    seconds = [m.seconds for m in good]
    largest = max(good, key=lambda m: m.peak_process_bytes)
    return Line(
        configuration,
        case,
        competitor,
        len(all_),
        failed,
        correct,
        seconds=median(seconds),
        seconds_min=min(seconds),
        seconds_max=max(seconds),
        ratio=against_floor(lambda m: m.seconds),
        cpu_s=middle(lambda m: m.cpu_s),
        cpu_ratio=against_floor(lambda m: m.cpu_s),
        rows_per_second=middle(lambda m: m.rows_in / m.seconds),
        peak_process_bytes=largest.peak_process_bytes,
        peak_process_name=largest.peak_process_name,
        peak_tree_bytes=max(m.peak_tree_bytes for m in good),
        idle_tree_bytes=int(middle(lambda m: m.idle_tree_bytes)),
        peak_temporary_bytes=max(m.peak_temporary_bytes for m in good),
        output_bytes=int(middle(lambda m: m.output_bytes)),
        output_ratio=against_floor(lambda m: m.output_bytes),
        written_bytes=int(middle(lambda m: m.written_bytes)),
        startup_s=middle(lambda m: m.startup_s),
        scheduling_share=detail("scheduling_share"),
        planned_peak_bytes=detail("planned_peak_bytes"),
        measured_peak_bytes=detail("measured_peak_bytes"),
        stages_s=_stages(good),
        error=errors[0] if errors else None,
    )


def _stages(good: Sequence[Measurement]) -> dict[str, float] | None:
    """Of the run in the middle, so that they add up; what no stage accounts for is the driver's own."""
    ordered = sorted(good, key=lambda m: m.seconds)
    middle = ordered[(len(ordered) - 1) // 2]
    stages: dict[str, float] | None = middle.details.get("seconds")
    return None if stages is None else stages | {"driver": max(0.0, middle.seconds - sum(stages.values()))}
