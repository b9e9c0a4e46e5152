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
    """One line for each competitor and case, in the order in which they first ran."""
    places = dict.fromkeys((measured.configuration, measured.case, measured.competitor) for measured in measurements)
    return [_line(*place, measurements) for place in places]


def _line(configuration: str, case: str, competitor: str, measurements: Iterable[Measurement]) -> Line:
    same_case = [
        measured for measured in measurements if (measured.configuration, measured.case) == (configuration, case)
    ]
    all_ = [measured for measured in same_case if measured.competitor == competitor]
    good = [measured for measured in all_ if measured.error is None]
    floors = {
        measured.repeat: measured for measured in same_case if measured.competitor == "floor" and measured.error is None
    }
    failed = len(all_) - len(good)
    errors = [measured.error for measured in all_ if measured.error]
    verdicts = [measured.correct for measured in all_ if measured.correct is not None]
    correct = all(verdicts) if verdicts else None
    if not good:
        return Line(configuration, case, competitor, len(all_), failed, correct, error=errors[0])

    def middle(value: Callable[[Measurement], float]) -> float:
        return median(map(value, good))

    def against_floor(value: Callable[[Measurement], float]) -> float | None:
        ratios = [
            value(measured) / value(floors[measured.repeat])
            for measured in good
            if measured.repeat in floors and value(floors[measured.repeat])
        ]
        return median(ratios) if ratios else None

    def detail(name: str) -> Any:
        found = [measured.details[name] for measured in good if measured.details.get(name) is not None]
        return median(found) if found else None

    seconds = [measured.seconds for measured in good]
    largest = max(good, key=lambda measured: measured.peak_process_bytes)
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
        ratio=against_floor(lambda measured: measured.seconds),
        cpu_s=middle(lambda measured: measured.cpu_s),
        cpu_ratio=against_floor(lambda measured: measured.cpu_s),
        rows_per_second=middle(lambda measured: measured.rows_in / measured.seconds),
        peak_process_bytes=largest.peak_process_bytes,
        peak_process_name=largest.peak_process_name,
        peak_tree_bytes=max(measured.peak_tree_bytes for measured in good),
        idle_tree_bytes=int(middle(lambda measured: measured.idle_tree_bytes)),
        peak_temporary_bytes=max(measured.peak_temporary_bytes for measured in good),
        output_bytes=int(middle(lambda measured: measured.output_bytes)),
        output_ratio=against_floor(lambda measured: measured.output_bytes),
        written_bytes=int(middle(lambda measured: measured.written_bytes)),
        startup_s=middle(lambda measured: measured.startup_s),
        scheduling_share=detail("scheduling_share"),
        planned_peak_bytes=detail("planned_peak_bytes"),
        measured_peak_bytes=detail("measured_peak_bytes"),
        stages_s=_stages(good),
        error=errors[0] if errors else None,
    )


def _stages(good: Sequence[Measurement]) -> dict[str, float] | None:
    """The seconds of the stages in the median run, so that they add up. The driver has what no stage accounts for."""
    ordered = sorted(good, key=lambda measured: measured.seconds)
    middle = ordered[(len(ordered) - 1) // 2]
    stages: dict[str, float] | None = middle.details.get("seconds")
    return None if stages is None else stages | {"driver": max(0.0, middle.seconds - sum(stages.values()))}
