"""Bars of ratios: as long as they are high, and those of the documents are the published figures."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from benchmarks import bars
from benchmarks.summary import Line


def line(case: str, competitor: str, ratio: float | None) -> Line:
    return Line("narrow", case, competitor, 1, 0, True, ratio=ratio)


def test_the_picture_is_that_of_the_published_table():
    assert bars.PUBLISHED.read_text() == bars.picture_of_readme(), "run python -m benchmarks.bars"
    panels = bars.published(bars.README.read_text())
    cells = re.findall(r"\d \(([\d.]+)\)", bars.README.read_text().split("seconds (x floor)")[1].split("\n\n")[0])
    assert sorted(ratio for found in panels.values() for _, ratio in found) == sorted(map(float, cells))
    assert len(panels) == 8 and all(
        name.startswith("deltacompact") for name, _ in [found[0] for found in panels.values()]
    )


def test_a_bar_is_as_long_as_its_ratio_and_the_floor_stands_at_one():
    lines = [line("full", "floor", 1.0), line("full", "deltacompact local", 0.5), line("full", "<peer>", 2.0)]
    panels = bars.measured([*lines, line("full", "broken", None), line("append", "polars", 0.1)])
    assert panels == {
        "narrow, full": [("deltacompact local", 0.5), ("<peer>", 2.0)],
        "narrow, append": [("polars", 0.1)],
    }
    drawn = ElementTree.fromstring(bars.bars_svg("x < floor", panels))
    rects = [one for one in drawn.iter() if one.tag.endswith("rect")]
    ours, peer, alone = (float(one.get("width")) for one in rects)
    assert peer == 4 * ours and [one.get("class") for one in rects] == ["ours", "peer", "peer"]
    floor, below = (float(one.get("x1")) for one in drawn.iter() if one.tag.endswith("line"))
    assert floor == float(rects[0].get("x")) + 2 * ours
    assert below == float(rects[2].get("x")) + 10 * alone, "a panel of ratios below 1 has room for the floor"
