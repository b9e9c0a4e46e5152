"""Numbers as people read them; a dash where there is none."""

from __future__ import annotations

NONE = "-"


def seconds(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f}"


def times(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f}"


def megabytes(value: float | None) -> str:
    """Bytes as text, in units of 10^6."""
    return (
        NONE if value is None else f"{value / 1e6:,.0f}" if value >= 1e7 else "0" if not value else f"{value / 1e6:.2f}"
    )


def planned_and_measured(planned: float | None, measured: float | None) -> str:
    """Memory that a plan allows for, and what was taken, in units of 10^6 bytes."""
    return f"{megabytes(planned)} / {megabytes(measured)}"


def percent(value: float | None) -> str:
    return NONE if value is None else f"{100 * value:.1f} %"


def thousands(value: float | None) -> str:
    return NONE if value is None else f"{value / 1e3:,.0f}"
