"""Pages that cannot be decoded do not get into a table unseen; where they are in it, one file is taken out."""

from __future__ import annotations

import io
import json
import re
import resource
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import parquet_footers as footers
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from tables import compacted_files, problems

import deltacompact
from deltacompact import DeltaStreamCatalog, SessionResult, Settings, cli, compact
from deltacompact.base.data_file import DataFile
from deltacompact.base.errors import ConflictError, DeltaCompactError, InputError, NotFoundError, StoreError
from deltacompact.base.limits import READ_LIMITS
from deltacompact.base.model import Partition
from deltacompact.delta_streams import taking_out
from deltacompact.storage.local import LocalStore
from deltacompact.storage.opening import open_store
from deltacompact.tabular.damage import naming
from deltacompact.tabular.orc_files import open_orc
from deltacompact.tabular.parquet_read import batches, described

ROWS = 40_000
LOCAL = Settings(executor="local", local_threads=1, row_group_rows=ROWS // 2)
EVERYWHERE = Partition()


@pytest.fixture
def catalog(tmp_path: Path) -> DeltaStreamCatalog:
    made = DeltaStreamCatalog(LocalStore(tmp_path / "lake"))
    made.create_table("t", (), ["id"])
    return made


def rows(first: int = 0, count: int = ROWS) -> pa.Table:
    rng = np.random.default_rng(first)
    return pa.table({"id": np.arange(first, first + count), "v": rng.integers(-(2**31), 2**31, count, np.int32)})


def run(catalog: DeltaStreamCatalog, **arguments: Any) -> SessionResult:
    (session,) = compact("t", delta_catalog_client=catalog, settings=LOCAL, **arguments).sessions
    assert session.error is None, session.error
    return session


def damage(path: Path, column: int = 1, group: int = 0, where: float = 0.0) -> None:
    """Other bytes in the pages of a column: by default in the header of the first."""
    chunk = pq.read_metadata(path).row_group(group).column(column)
    begin = chunk.dictionary_page_offset or chunk.data_page_offset
    with path.open("r+b") as file:
        file.seek(begin + int(where * chunk.total_compressed_size))
        file.write(b"\xff" * 40)


def written_by_pyarrow(path: Path, first: int = 0, **how: Any) -> Path:
    pq.write_table(rows(first), path, row_group_size=ROWS // 2, compression="zstd", **how)
    return path


def test_a_file_that_our_reader_cannot_decode_is_refused_at_append_by_column_and_row_group(
    catalog: DeltaStreamCatalog, tmp_path: Path
) -> None:
    written = rows()
    path = tmp_path / "packed.parquet"
    duckdb.sql(f"copy (from written) to '{path}' (format parquet, parquet_version 'V2')")
    assert written.num_rows
    for reference in (False, True):
        with pytest.raises(
            InputError, match=r"packed\.parquet cannot be read: column 'v', row group 0: .*InitBlock EOF"
        ):
            catalog.append_files("t", [path], reference=reference)
    catalog.append("t", rows(count=3))
    assert catalog.read("t").num_rows == 3


def test_a_file_of_a_writer_that_nobody_knows_is_decoded_at_append_and_then_copied(
    catalog: DeltaStreamCatalog, tmp_path: Path
) -> None:
    path = written_by_pyarrow(tmp_path / "a.parquet")
    data = path.read_bytes()
    assert data.count(b"parquet-cpp-arrow version 26") == 1
    path.write_bytes(data.replace(b"parquet-cpp-arrow version 26", b"carbon-cpp-arrow version 126"))
    (file,) = catalog.append_files("t", [path]).files
    assert file.decodes
    assert run(catalog).rows_copied == ROWS
    assert catalog.read("t").sort_by("id").equals(rows())
    damage(path)
    with pytest.raises(InputError, match=r"a\.parquet cannot be read: column 'v', row group 0"):
        catalog.append_files("t", [path])


def test_a_record_of_the_version_before_is_not_trusted(catalog: DeltaStreamCatalog, tmp_path: Path) -> None:
    from dataclasses import replace

    from deltacompact.table.documents import SchemaTable, file_from_json, file_to_json

    (file,) = catalog.append_files("t", [written_by_pyarrow(tmp_path / "a.parquet")]).files
    schemas = SchemaTable()
    document = file_to_json(file, schemas)
    assert document.pop("decodes") is True
    assert file_from_json(document, schemas) == replace(file, decodes=False)


def test_a_page_whose_checksum_is_wrong_is_not_copied(catalog: DeltaStreamCatalog, tmp_path: Path) -> None:
    path = written_by_pyarrow(tmp_path / "a.parquet", write_page_checksum=True, use_dictionary=False)
    catalog.append_files("t", [path])
    (delta,) = catalog.state("t", EVERYWHERE).deltas
    damage(tmp_path / "lake" / delta.files[0].path, where=0.5)
    with pytest.raises(DeltaCompactError, match=r"a\.parquet.*cannot be read: .*the checksum of a page.*--position"):
        compact("t", delta_catalog_client=catalog, settings=LOCAL)
    with pytest.raises(DeltaCompactError, match=r"cannot be read: column 'v', row group 0: .*CRC"):
        catalog.read("t")


def test_a_damaged_feather_file_is_refused_at_append(catalog: DeltaStreamCatalog, tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    feather.write_feather(rows(), path, compression="zstd", chunksize=1000)
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 4000] = b"\xff" * 4000
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"a\.arrow"):
        catalog.append_files("t", [path])


@pytest.mark.parametrize("damaged", [b"\xff\xff\xff\x7f", b"\x01\x00\x00\x80"])
def test_a_feather_file_whose_offsets_lead_out_of_it_ends_no_process(
    catalog: DeltaStreamCatalog, tmp_path: Path, damaged: bytes
) -> None:
    path = tmp_path / "given.feather"
    feather.write_feather(pa.table({"id": [1, 2], "v": ["a", "b"]}), path, compression="uncompressed")
    offsets = np.array([0, 1, 2], np.int32).tobytes()
    assert path.read_bytes().count(offsets) == 1
    path.write_bytes(path.read_bytes().replace(offsets, offsets[:4] + damaged + offsets[8:]))
    with pytest.raises(InputError, match=r"given\.feather cannot be read: .*[Oo]ffset"):
        catalog.append_files("t", path)


def _of_another_type(chunk: footers.Struct) -> None:
    chunk[1] = (footers.I32, 1)


def _with_an_unknown_codec(chunk: footers.Struct) -> None:
    chunk[4] = (footers.I32, 9)


def _with_a_short_bound(chunk: footers.Struct) -> None:
    chunk[footers.STATISTICS][1][footers.MAX_VALUE] = (footers.BINARY, b"\x01")


def _with_too_many_levels(chunk: footers.Struct) -> None:
    chunk[16] = (footers.STRUCT, {3: (footers.LIST, (footers.I64, [0, 2, 0]))})


def _with_characters(chunk: footers.Struct) -> None:
    chunk[16] = (footers.STRUCT, {1: (footers.I64, 2)})


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (_of_another_type, "its type is another one than in the schema"),
        (_with_an_unknown_codec, "its codec is none"),
        (_with_a_short_bound, "its least or greatest value is cut short"),
        (_with_too_many_levels, "its levels are not those of the schema"),
        (_with_characters, "it counts characters, and is no text"),
    ],
)
@pytest.mark.parametrize("reference", [False, True])
def test_a_footer_about_which_pyarrow_ends_the_process_is_refused_at_append_by_column(
    catalog: DeltaStreamCatalog, tmp_path: Path, broken: Any, why: str, reference: bool
) -> None:
    path = tmp_path / "flipped.parquet"
    data = written_by_pyarrow(path).read_bytes()
    footer = footers.footer(data)
    broken(footers.chunks(footer)[2][footers.META_DATA][1])
    path.write_bytes(footers.with_footer(data, footer))
    with pytest.raises(
        InputError, match=rf"flipped\.parquet cannot be read: its footer is damaged: row group 1, column id: {why}"
    ):
        catalog.append_files("t", [path], reference=reference)
    catalog.append("t", rows(count=3))
    assert catalog.read("t").num_rows == 3


@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize("key", ["id", "v"])
def test_a_writer_may_cut_the_least_and_greatest_value_of_long_fixed_values(
    tmp_path: Path, key: str, reference: bool
) -> None:
    """Rust's writers cut them to 64 bytes. pyarrow ends the process that asks for them, so the file was refused.

    Row groups that are copied lose them.
    """
    given = pa.table(
        {"id": range(9), "v": pa.array([b"%0100d" % number for number in range(9)], pa.binary(100)), "w": range(9)}
    )
    pq.write_table(given, path := tmp_path / "cut.parquet", row_group_size=5, store_schema=False)
    footer = footers.footer(data := path.read_bytes())
    for chunk in footers.chunks(footer)[1::3]:
        bounds = chunk[footers.META_DATA][1][footers.STATISTICS][1]
        bounds |= {name: (footers.BINARY, bounds[name][1][:64]) for name in (footers.MAX_VALUE, footers.MIN_VALUE)}
    path.write_bytes(footers.with_footer(data, footer))
    with pa.OSFile(str(path)) as source:
        chunks = [described(source).metadata.row_group(group).column(place) for group in (0, 1) for place in range(3)]
    assert [chunk.statistics.has_min_max for chunk in chunks] == [True, False, True] * 2
    catalog = DeltaStreamCatalog(LocalStore(tmp_path / "lake"))
    catalog.create_table("t", (), [key])
    catalog.append_files("t", [path], reference=reference)
    compact("t", delta_catalog_client=catalog, settings=replace(LOCAL, row_group_rows=5))
    assert catalog.read("t", filter=[("v", ">=", b"%0100d" % 4)]).sort_by("id").equals(given.slice(4))
    (file,) = compacted_files(catalog)
    copied = pq.read_metadata(tmp_path / "lake" / file.path)
    assert [copied.row_group(group).column(1).statistics.has_min_max for group in (0, 1)] == [False, False]


ONE_STRUCT, GIGABYTES_OF_THEM = bytes.fromhex("191c"), bytes.fromhex("19fcffffffff07")
"""Field 1 or 4, a list: of one struct, of 2^31 - 1."""


def _with_indexes() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": range(10)}), sink, write_page_index=True, store_schema=False)
    return sink.getvalue()


def test_a_footer_that_claims_more_row_groups_than_any_memory_holds_is_refused(
    catalog: DeltaStreamCatalog, tmp_path: Path
) -> None:
    """The `parquet` crate allocated them, and the process ended."""
    path, data = tmp_path / "claims.parquet", _with_indexes()
    begin = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    claims = data[begin:-8].replace(ONE_STRUCT, GIGABYTES_OF_THEM, 1)
    path.write_bytes(data[:begin] + claims + len(claims).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(InputError, match=r"claims\.parquet cannot be read"):
        catalog.append_files("t", [path])


def test_an_offset_index_that_claims_more_pages_than_any_memory_holds_is_not_read() -> None:
    """pyarrow does not look at it, and reads all rows."""
    data = _with_indexes()
    begin = data.rindex(ONE_STRUCT, 0, len(data) - 8 - int.from_bytes(data[-8:-4], "little"))
    claims = data[:begin] + GIGABYTES_OF_THEM + data[begin + len(GIGABYTES_OF_THEM) :]
    with pa.BufferReader(claims) as source:
        found = described(source, to_copy=True)
        assert found.footer is not None
        assert [table.num_rows for _, table in batches(source, found, ["id"], 0, 10, READ_LIMITS)] == [10]


@pytest.mark.processes
@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_no_flipped_bit_of_a_footer_ends_the_process_that_appends_and_reads_the_file(tmp_path: Path, kind: str) -> None:
    driver = Path(__file__).with_name("flipped_footers.py")
    done = subprocess.run([sys.executable, driver, tmp_path, kind], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    refused, read = map(int, done.stdout.split())
    assert refused > 900 and read > 900, done.stdout


def test_a_connection_that_breaks_below_orc_is_no_damage(tmp_path: Path) -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise ConnectionResetError("reset by peer")

    with pytest.raises(StoreError, match="reset by peer"), naming("a.orc"):
        open_orc(pa.PythonFile(Broken(b"ORC" * 100), "r"))


def test_json_that_is_nested_too_deeply_is_named(catalog: DeltaStreamCatalog, tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text('{"id": 1, "v": ' + "[" * 3_000 + "]" * 3_000 + "}\n")
    with pytest.raises(InputError, match=r"deep\.json cannot be read: maximum recursion depth"):
        catalog.append_files("t", [tmp_path / "deep.json"])
    assert catalog.read("t").num_rows == 0


@pytest.fixture
def damaged(catalog: DeltaStreamCatalog, tmp_path: Path) -> tuple[DeltaStreamCatalog, DataFile]:
    """Two compacted files, one of which is damaged in a column that is no key; a delta waits."""
    catalog.append_files("t", [written_by_pyarrow(tmp_path / "a.parquet")])
    run(catalog, rows_per_compacted_file=ROWS)
    catalog.append("t", rows(ROWS), token="second")
    run(catalog, rows_per_compacted_file=ROWS)
    catalog.append("t", rows(5, 10), operation="upsert", token=("etl", 7))
    broken, _ = compacted_files(catalog)
    damage(tmp_path / "lake" / broken.path)
    return catalog, broken


def commands(text: str) -> list[str]:
    return shlex.split(re.search(r"deltacompact (retract .*)$", text)[1])  # type: ignore[index]


def test_check_decodes_every_column_unless_it_is_to_be_quick(damaged: Any) -> None:
    catalog, broken = damaged
    (problem,) = problems(catalog)
    assert f"{broken.path} cannot be read: column 'v', row group 0" in problem
    assert f"retract {catalog.uri} t --file {broken.path}" in problem
    (quick,) = deltacompact.check(catalog, "t", quick=True)
    assert quick.problems == ()


def test_damage_that_is_compacted_is_taken_out_by_the_command_of_the_message_and_no_other_row_is_lost(
    damaged: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    catalog, broken = damaged
    lost = broken.live_rows
    with pytest.raises(DeltaCompactError) as raised:
        catalog.read("t")
    words = commands(str(raised.value))
    before = catalog.read("t", columns=["id"]).num_rows
    assert cli.run([*words, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["rows"] == lost and said["retracted_file"] == broken.path
    assert cli.run([*words, "--json"]) == 0, "who got no answer repeats the command"
    assert json.loads(capsys.readouterr().out) == said
    again = DeltaStreamCatalog(open_store(catalog.uri))
    state = again.state("t", EVERYWHERE)
    assert state.version == said["version"] and state.opened.taken_out.rows == lost
    assert problems(again) == []
    left = before - lost + 10  # ten of the keys have a row in the delta that waits
    assert again.read("t").num_rows == left
    assert not again.append("t", rows(0, 1), token="second").committed, "tokens stay known"
    run(again)
    assert problems(again) == []
    assert again.read("t").num_rows == left
    again.append("t", rows(0, 2 * ROWS))  # whoever has the rows appends them again
    run(again)
    assert again.read("t").num_rows == 2 * ROWS and problems(again) == []


def test_one_damaged_file_of_several_goes_and_the_others_of_its_delta_stay(
    catalog: DeltaStreamCatalog, tmp_path: Path
) -> None:
    paths = [written_by_pyarrow(tmp_path / f"{number}.parquet", number * ROWS) for number in range(3)]
    delta = catalog.append_files("t", paths)
    damage(tmp_path / "lake" / delta.files[1].path)
    with pytest.raises(DeltaCompactError, match=rf"1\.parquet.*take out this file.*--file {delta.files[1].path}$"):
        catalog.read("t")
    deltacompact.retract_file(catalog, "t", str(paths[1]))
    assert catalog.read("t").num_rows == 2 * ROWS
    run(catalog)
    assert problems(catalog) == [] and catalog.read("t").num_rows == 2 * ROWS


def test_a_file_that_was_appended_twice_by_reference_is_taken_out_and_the_call_is_repeated_by_its_name(
    catalog: DeltaStreamCatalog, tmp_path: Path
) -> None:
    """The error named two files of one path, and the repeated call said that there is no such file."""
    path = str(written_by_pyarrow(tmp_path / "a.parquet", 0))
    catalog.append("t", rows(ROWS, 3))
    for _ in range(2):
        catalog.append_files("t", [path], reference=True)
    state = deltacompact.retract_file(catalog, "t", path)
    assert catalog.read("t").num_rows == 3
    for again in (catalog, DeltaStreamCatalog(open_store(catalog.uri))):
        for name in (path, state.opened.taken_out.path):
            assert deltacompact.retract_file(again, "t", name).version == state.version
        with pytest.raises(NotFoundError, match="has no file 'nowhere'"):
            deltacompact.retract_file(again, "t", "nowhere")
    catalog.append_files("t", [path])
    assert deltacompact.retract_file(catalog, "t", path).opened.parent == state.version
    assert catalog.read("t").num_rows == 3 and problems(catalog) == []


@pytest.mark.parametrize("opened", [pa.OSFile, io.FileIO])
def test_words_in_a_path_do_not_make_bytes_broken(tmp_path: Path, opened: Any) -> None:
    (path := tmp_path / "reason=invalid" / "not a checksum").parent.mkdir()
    path.write_bytes(b"1")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(StoreError, match="Too many open files"), naming(str(path)):
            opened(str(path))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_taking_out_is_nothing_until_its_seal_and_loses_no_commit_that_comes_meanwhile(
    damaged: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, broken = damaged
    contents, other = taking_out._contents, DeltaStreamCatalog(open_store(catalog.uri))

    def killed(*arguments: Any) -> Any:
        contents(*arguments)
        raise KeyboardInterrupt

    version = catalog.state("t", EVERYWHERE).version
    monkeypatch.setattr(taking_out, "_contents", killed)
    with pytest.raises(KeyboardInterrupt):
        deltacompact.retract_file(catalog, "t", broken.path)
    assert catalog.state("t", EVERYWHERE).version == version

    def beside_a_writer(*arguments: Any) -> Any:
        other.append("t", rows(9 * ROWS, 4))
        return contents(*arguments)

    monkeypatch.setattr(taking_out, "_contents", beside_a_writer)
    deltacompact.retract_file(catalog, "t", broken.path)
    assert catalog.read("t", columns=["id"]).filter(pa.compute.field("id") >= 9 * ROWS).num_rows == 4

    def beside_a_retraction(*arguments: Any) -> Any:
        made = contents(*arguments)
        deltacompact.retract(other, "t", other.state("t", EVERYWHERE).deltas[0].position)
        return made

    monkeypatch.setattr(taking_out, "_contents", beside_a_retraction)
    with pytest.raises(ConflictError, match="retracted meanwhile"):
        deltacompact.retract_file(catalog, "t", compacted_files(catalog)[0].path)
    with pytest.raises(NotFoundError, match="has no file 'nowhere'"):
        deltacompact.retract_file(catalog, "t", "nowhere")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"id": 7, "v": "x"}', r"line 20,001: 'v' is a string, in earlier rows a number"),
        ('{"id": 7, "v": 1', r"line 20,001 is no JSON object"),
    ],
)
def test_a_line_that_is_not_like_the_others_is_named(
    catalog: DeltaStreamCatalog, tmp_path: Path, line: str, why: str
) -> None:
    """The parser counts from 0 on, in its second block anew."""
    lines = [json.dumps({"id": 1, "v": 1, "pad": "x" * 100})] * 20_000
    (tmp_path / "odd.json").write_text("\n".join([*lines, line, "{}"]))
    with pytest.raises(InputError, match=rf"odd\.json: {why}"):
        catalog.append_files("t", [tmp_path / "odd.json"])
