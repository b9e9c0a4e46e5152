"""Bars of ratios: as long as they are high, and those of the documents are the published figures."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from benchmarks import bars, merges
from benchmarks.summary import Line


def line(case: str, competitor: str, ratio: float | None) -> Line:
    return Line("narrow", case, competitor, 1, 0, True, ratio=ratio)


@pytest.mark.parametrize("picture", bars.PUBLISHED, ids=lambda picture: picture.name)
def test_the_picture_is_that_of_the_published_table(picture):
    corner, _ = table = bars.PUBLISHED[picture]
    assert picture.read_text() == bars.picture_of_readme(*table), "run python -m benchmarks.bars"
    panels = bars.published(bars.README.read_text(), corner)
    cells = re.findall(r"\d \(([\d.]+)\)", bars.README.read_text().split(corner)[1].split("\n\n")[0])
    assert sorted(ratio for found in panels.values() for _, ratio in found) == sorted(map(float, cells))
    assert "undated" not in picture.read_text()
    assert all(name.startswith("deltacompact") for name, _ in [found[0] for found in panels.values()])


def test_a_bar_is_as_long_as_its_ratio_and_the_floor_stands_at_one():
    lines = [line("full", "floor", 1.0), line("full", "deltacompact local", 0.5), line("full", "<peer>", 2.0)]
    panels = bars.measured([*lines, line("full", "broken", None), line("append", "polars", 0.1)])
    assert panels == {
        "narrow, full": [("deltacompact local", 0.5), ("<peer>", 2.0)],
        "narrow, append": [("polars", 0.1)],
    }
    drawn = ElementTree.fromstring(bars.bars_svg("x < floor", panels))
    rects = [element for element in drawn.iter() if element.tag.endswith("rect")]
    ours, peer, alone = (float(rect.get("width")) for rect in rects)
    assert peer == 4 * ours and [rect.get("class") for rect in rects] == ["ours", "peer", "peer"]
    floor, below = (float(element.get("x1")) for element in drawn.iter() if element.tag.endswith("line"))
    assert floor == float(rects[0].get("x")) + 2 * ours
    assert below == float(rects[2].get("x")) + 10 * alone, "a panel of ratios below 1 has room for the floor"


def test_the_suites_tables_hold_everyone_against_delta_rs():
    def measured(case: str, competitor: str, cpu_s: int | None) -> Line:
        return Line(
            "duckrun-sf1", case, competitor, 1, 0, True, cpu_s=cpu_s, peak_process_bytes=int(2e8 * (cpu_s or 1))
        )

    ours, theirs = "deltacompact marked", merges.RIVAL
    lines = [measured("upsert", "floor", 1), measured("upsert", theirs, 4), measured("upsert", ours, 1)]
    text = merges.tables([measured("cdc", ours, None), measured("cdc", theirs, 2), *lines])
    assert text.splitlines() == [
        "| CPU seconds (x delta-rs) | upsert | cdc |",
        "|---|---:|---:|",
        f"| {ours} | 1 (0.25) | - |",
        f"| {theirs} | 4 | 2 |",
        "",
        "| largest process, MB (x delta-rs) | upsert | cdc |",
        "|---|---:|---:|",
        f"| {ours} | 200 (0.25) | 200 (0.50) |",
        f"| {theirs} | 800 | 400 |",
    ]
    panels = bars.published(text, "CPU seconds (x delta-rs)")
    assert panels == {"upsert": [(ours, 0.25)]}
