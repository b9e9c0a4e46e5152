"""Ratios to the floor as bars, in an SVG that follows light and dark: a panel for each case, a bar for each competitor.

    narrow, full          deltacompact, in process  ▇▇▇▇▇▇▇▇▇ 1.39        | is the floor, 1
                          Polars unique             ▇▇▇▇▇▇▇▇▇▇ 1.48

A run writes `ratios.svg` beside its report. `python -m benchmarks.bars` draws the figures that benchmarks/README.md
publishes: the first table into docs/ratios.svg, that of duckrun's suite, where delta-rs is the line, into
docs/merges.svg; a test holds one against the other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from benchmarks.summary import Line

README = Path(__file__).with_name("README.md")
_DOCS = README.parents[1] / "docs"
PUBLISHED = {
    _DOCS / "ratios.svg": ("seconds (x floor)", "Time as a multiple of the floor (the line)"),
    _DOCS / "merges.svg": ("CPU seconds (x delta-rs)", "CPU seconds as a multiple of those of delta-rs (the line)"),
}
"""By picture: the first cell of its table in README.md, and what the picture shows."""

Panels = Mapping[str, Sequence[tuple[str, float]]]
"""By the name of a case: competitors, with their ratio to the floor."""

_WIDTH, _LABEL, _BAR, _ROW, _HEAD, _GAP = 470, 190, 210, 20, 30, 22
_STYLE = """
    :root { --ink: #1b1d22; --soft: #666a73; --ours: #1f6fb4; --peer: #d9a441; --line: #1b1d22 }
    @media (prefers-color-scheme: dark) {
      :root { --ink: #e9eaec; --soft: #a0a6b0; --ours: #56b4e9; --peer: #c08a2c; --line: #e9eaec }
    }
    text { font: 12px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: var(--ink) }
    .head { font-weight: 600; font-size: 13px } .soft { fill: var(--soft) } .ours { fill: var(--ours) }
    .peer { fill: var(--peer) } line { stroke: var(--line) }
"""


def bars_svg(title: str, panels: Panels) -> str:
    """The drawing, two panels side by side. Each panel has a scale of its own, on which the floor is marked."""
    parts, top = [], 44
    cases = list(panels.items())
    for start in range(0, len(cases), 2):
        pair = cases[start : start + 2]
        for place, (case, bars) in enumerate(pair):
            parts += _panel(case, bars, place * _WIDTH + 10, top)
        top += _HEAD + _ROW * max(len(bars) for _, bars in pair) + _GAP
    box = f'viewBox="0 0 {2 * _WIDTH} {top}" role="img" aria-labelledby="title"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {box}>'
    title_line = f'<text class="soft" x="10" y="22">{escape(title)}</text>'
    body = "\n".join(f"  {part}" for part in (title_line, *parts))
    return f'{head}\n  <title id="title">{escape(title)}</title>\n  <style>{_STYLE}  </style>\n{body}\n</svg>\n'


def _panel(case: str, bars: Sequence[tuple[str, float]], left: float, top: float) -> list[str]:
    most = max(1.0, *(ratio for _, ratio in bars))
    floor = left + _LABEL + _BAR / most
    parts = [f'<text class="head" x="{left}" y="{top + 14}">{escape(case)}</text>']
    for place, (competitor, ratio) in enumerate(bars):
        y, kind = top + _HEAD + place * _ROW, "ours" if competitor.startswith("deltacompact") else "peer"
        width = _BAR * ratio / most
        parts += [
            f'<text x="{left}" y="{y + 9}">{escape(competitor)}</text>',
            f'<rect class="{kind}" x="{left + _LABEL}" y="{y}" width="{width:.1f}" height="12" rx="2"/>',
            f'<text x="{left + _LABEL + width + 6:.1f}" y="{y + 10}">{ratio:.3g}</text>',
        ]
    bottom = top + _HEAD + len(bars) * _ROW - 4
    return [*parts, f'<line x1="{floor:.1f}" y1="{top + _HEAD - 6}" x2="{floor:.1f}" y2="{bottom}"/>']


def measured(lines: Sequence[Line]) -> Panels:
    """The panels of a run; the floor is the line in each."""
    panels: dict[str, list[tuple[str, float]]] = {}
    for line in lines:
        if line.ratio is not None and line.competitor != "floor":
            panels.setdefault(f"{line.configuration}, {line.case}", []).append((line.competitor, line.ratio))
    return panels


def published(text: str, corner: str) -> Panels:
    """The panels of a table of README.md with ratios in brackets: "5.7 (1.39)". `corner` is its first cell."""
    table = text[text.index(f"| {corner} |") :].partition("\n\n")[0]
    head, _, *rows = ([cell.strip() for cell in row.split("|")[1:-1]] for row in re.findall(r"^\|.*\|$", table, re.M))
    panels = dict[str, list[tuple[str, float]]]()
    for row in rows:
        for case, cell in zip(head[1:], row[1:], strict=True):
            if ratio := re.search(r"\(([\d.]+)\)", cell):
                panels.setdefault(case, []).append((_plain(row[0]), float(ratio[1])))
    return panels


def _plain(name: str) -> str:
    return re.sub(r"[*`]|, window function", "", name)


def picture_of_readme(corner: str, shown: str) -> str:
    text = README.read_text()
    section = text[: text.index(f"| {corner}")].rpartition("\n#")[2]
    date = re.search(r"Measured on (\d+ \w+ \d{4})", section)
    title = f"{shown}, {date[1] if date else 'undated'}: less is better"
    return bars_svg(title, published(text, corner))


if __name__ == "__main__":
    for picture, table in PUBLISHED.items():
        picture.write_text(picture_of_readme(*table))
