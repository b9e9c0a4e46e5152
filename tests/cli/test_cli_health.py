"""check --health: thresholds, statuses for schedulers, JSON, and pictures."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ElementTree

import pyarrow as pa
import pytest
from iceberg_fixtures import lake  # noqa: F401  (fixture)
from publications import configure

import deltacompact
from deltacompact import Settings, cli
from deltacompact.base.thresholds import Thresholds
from deltacompact.maintenance.health import Health, worst_first

HOSTILE = ["a$b$", "\x1b[2J", "\u202egnp", "שלום", "日本語", "<b>&", "x" * 200, None]


@pytest.fixture
def orders(tmp_path):
    """A table of partitions: in `late` three deltas wait, the others are compacted, in `dead` with dead rows."""
    catalog = deltacompact.open_catalog(tmp_path / "lake")
    catalog.create_table("t", ["p"], ["id"])
    for name in ("late", "dead", "fine"):
        catalog.append("t", pa.table({"id": range(100)}), {"p": name})
    settings = Settings(executor="local", rewrite_dead_fraction=0.9)
    deltacompact.compact("t", delta_catalog_client=catalog, settings=settings)
    catalog.append("t", pa.table({"id": range(40)}), {"p": "dead"}, "delete")
    deltacompact.compact("t", delta_catalog_client=catalog, settings=settings)
    for number in range(3):
        catalog.append("t", pa.table({"id": [number]}), {"p": "late"})
    return str(tmp_path / "lake")


def test_the_status_tells_a_scheduler(orders, capfd):
    assert cli.run(["check", orders, "t", "--health", "--max-dead-share", "0.5"]) == 0
    first, second = capfd.readouterr().out.splitlines()
    assert first == "t: 3 partitions, all healthy"
    assert second.startswith("  300 rows, 40 of them dead; 3 files, ") and second.endswith("; 3 rows waiting")
    assert cli.run(["check", orders, "t", "--health"]) == 4
    out, err = capfd.readouterr()
    assert out.splitlines()[2:] == ["p=dead: 40.0 % dead rows (30 %)"]
    assert "table 't': 1 partition beyond a threshold" in err
    strict = ["--max-overlap", "2", "--max-small-files", "0", "--max-age-hours", "0"]
    assert cli.run(["check", orders, "t", "--health", *strict]) == 4
    late, dead, fine = capfd.readouterr().out.splitlines()[2:]
    assert late == "p=late: 1 small file (0); 3 files over the others (2); the oldest delta waits for 0.0 h (0 h)"
    assert dead.startswith("p=dead: 1 small file (0); 40.0 %") and fine == "p=fine: 1 small file (0)"
    assert cli.run(["check", orders, "t", "--health", *strict, "--small-file-mib", "0", "--partition", "p=fine"]) == 0


def test_the_health_as_json(orders, capfd):
    assert cli.run(["check", orders, "t", "--health", "--json"]) == 4
    found = {partition["partition"]["p"]: partition for partition in json.loads(capfd.readouterr().out)}
    assert [name for name, partition in found.items() if not partition["healthy"]] == ["dead"]
    assert found["dead"]["beyond"] == ["dead_share"] and found["dead"]["dead_rows"] == 40
    assert (found["late"]["overlap"], found["late"]["waiting_rows"], found["late"]["small_files"]) == (3, 3, 1)
    assert found["late"]["age_s"] >= 0 and found["fine"]["age_s"] is None


@pytest.mark.slow
def test_options_of_one_check_are_refused_by_the_other(orders, capfd):
    for words, said in (
        (["--max-overlap", "3"], "--max-overlap is for check --health"),
        (["--health", "--quick"], "--health reads no row: leave --quick out"),
        (["--health", "--branch", "main"], "--branch is for tables of Iceberg catalogs"),
        (["--health", "--plot", "x.png"], "plot x.png: name an .svg file"),
        (["--health", "--plot", "file:/tmp/x.svg"], "plot file:/tmp/x.svg: name a local path, not a URI"),
        (["--health", "--plot", "/proc/none/x.svg"], "plot /proc/none/x.svg cannot be written"),
    ):
        assert cli.run(["check", orders, "t", *words]) == 2, words
        assert said in capfd.readouterr().err


@pytest.mark.slow
def test_a_table_that_holds_nothing_is_healthy(tmp_path, capfd):
    deltacompact.open_catalog(tmp_path / "lake").create_table("t", primary_keys=["id"])
    assert cli.run(["check", str(tmp_path / "lake"), "t", "--health", "--plot", str(tmp_path / "x.svg")]) == 0
    assert "nothing to do" in capfd.readouterr().out and (tmp_path / "x.svg").exists()


def test_a_damaged_partition_counts_more_than_an_ill_one(orders, tmp_path, capfd):
    store = deltacompact.open_catalog(orders).store
    for stat in list(store.list("t/")):
        if "p=fine/" in stat.path and stat.path.endswith(".json"):
            store.put(stat.path, b"{")
    assert cli.run(["check", orders, "t", "--health"]) == 1
    said = capfd.readouterr().out
    assert "p=fine: failed: " in said and "p=dead: 40.0 %" in said


@pytest.mark.slow
def test_an_iceberg_branch_has_a_health(lake, monkeypatch, capfd, tmp_path):
    configure(lake, monkeypatch)
    lake.create("ns.t", pa.schema([("id", pa.int64())]))
    for number in range(5):
        lake.append("ns.t", [{"id": number}, {"id": 7}])
    for _ in range(2):
        lake.delete_by_key("ns.t", {"id": [7]})
    words = ["check", f"iceberg://{lake.name}", "ns.t"]
    assert cli.run([*words, "--health", "--json", "--max-overlap", "1"]) == 4
    (found,) = json.loads(capfd.readouterr().out)
    assert (found["files"], found["rows"], found["dead_rows"], found["overlap"]) == (5, 10, 2, 2)
    assert found["beyond"] == ["overlap"]
    assert cli.run([*words, "--health", "--plot", str(tmp_path / "x.svg")]) == 0
    capfd.readouterr()
    assert cli.run(words) == 0
    assert "ns.t: sound; 5 data files, 10 rows" in capfd.readouterr().out
    assert cli.run([*words, "--health", "--partition", "p=1"]) == 2


def test_one_equality_delete_does_not_make_every_partition_dead(lake):
    lake.create("ns.t", pa.schema([("id", pa.int64()), ("day", pa.int64())]))
    with lake.catalog.load_table("ns.t").update_spec() as update:
        update.add_identity("day")
    lake.append("ns.t", [{"id": number, "day": number % 3} for number in range(12)])
    lake.delete_by_key("ns.t", {"id": [1, 2, 3]}, spec_id=0)  # under no partition: it may apply to every file
    partitions = deltacompact.open_catalog(lake.catalog).table("ns.t").check(health=True).partitions
    assert [(of_day.rows, of_day.dead_rows) for of_day in partitions] == [(4, 1)] * 3


def texts(path):
    return {
        "".join(element.itertext()).strip()
        for element in ElementTree.parse(path).iter()
        if element.tag.endswith("}text")
    }


@pytest.mark.slow
def test_pictures_have_every_name_as_it_is(tmp_path, capfd):
    catalog = deltacompact.open_catalog(tmp_path / "lake")
    catalog.create_table("t", ["p"], ["id"])
    for value in HOSTILE:
        catalog.append("t", pa.table({"id": [1]}), {"p": value})
    for words in (["check", "--health"], ["plan"]):
        path = tmp_path / f"{words[0]}.svg"
        assert cli.run([words[0], str(catalog.store.root), "t", *words[1:], "--plot", str(path)]) == 0
        said = texts(path)
        assert {"p=a$b$", r"p=\x1b[2J", r"p=\u202egnp", "p=שלום", "p=日本語", "p=<b>&", "p=null"} <= said
        assert not any("x" * 30 in text for text in said)
    assert {"before", "after", "files", "MiB"} <= said


@pytest.mark.slow
def test_a_picture_of_thousands_is_small(tmp_path):
    from deltacompact.reports.health import TableHealth
    from deltacompact.reports.plots import draw_health

    found = [Health({"p": str(number)}, (number << 10,), 10, number % 10, number) for number in range(3000)]
    draw_health(str(tmp_path / "x.svg"), TableHealth("t", Thresholds(), tuple(found)))
    assert (tmp_path / "x.svg").stat().st_size < 500_000
    assert "partitions, the largest first" in texts(tmp_path / "x.svg")
    worst = worst_first(found, Thresholds(dead_share=0.85, small_files=0))
    assert worst[0].partition == {"p": "2999"} and worst[0].dead_share == 0.9


def test_without_matplotlib_one_line_says_what_to_install(orders, capfd, monkeypatch, tmp_path):
    monkeypatch.delitem(sys.modules, "deltacompact.reports.plots", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delattr("deltacompact.reports.plots", raising=False)
    assert cli.run(["plan", orders, "t", "--plot", str(tmp_path / "x.svg")]) == 2
    assert "matplotlib is not installed: pip install 'deltacompact[plot]'" in capfd.readouterr().err
    assert cli.run(["plan", orders, "t"]) == 0


def test_a_plan_of_an_iceberg_table_is_drawn(lake, monkeypatch, capfd, tmp_path):
    configure(lake, monkeypatch)
    lake.create("ns.t", pa.schema([("id", pa.int64())]))
    for number in range(5):
        lake.append("ns.t", [{"id": number}])
    assert cli.run(["plan", f"iceberg://{lake.name}", "ns.t", "--plot", str(tmp_path / "x.svg")]) == 0
    assert {"data files", "delete files", "MiB", "ns.t"} <= texts(tmp_path / "x.svg")


def test_thresholds_by_their_places_mean_what_they_meant():
    assert Thresholds(1, 2, 3, 0.4, 5.0) == Thresholds(
        small_files=1, small_file_bytes=2, overlap=3, dead_share=0.4, age_s=5.0
    )
