"""Whatever is wrong with a request: one clear line that names the culprit, the exit status, and nothing changed."""

from __future__ import annotations

import io
import json
import os
import re
from decimal import Decimal

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

import deltacompact
from deltacompact import cli
from deltacompact.base.errors import DeltaCompactError, InputError, NotFoundError, SchemaError
from deltacompact.base.model import ContentType
from deltacompact.storage.memory import MemoryStore
from deltacompact.tabular.inspecting import inspect


@pytest.fixture
def lake(tmp_path):
    return Lake(tmp_path)


class Lake:
    """A catalog on disk, driven by command lines."""

    def __init__(self, folder):
        self.folder = folder
        self.uri = str(folder / "lake")
        self.files = 0

    @property
    def catalog(self):
        return deltacompact.open_catalog(self.uri)

    def run(self, command, *arguments):
        return cli.run([command, self.uri, *map(str, arguments)])

    def file(self, table, suffix=".parquet"):
        self.files += 1
        path = self.folder / f"given-{self.files}{suffix}"
        pq.write_table(table, path)
        return path

    def snapshot(self):
        """Everything that is stored, by path."""
        store = self.catalog.store
        return {stat.path: store.get(stat.path) for stat in store.list("")}


def refused(lake, capfd, command, *arguments, names, status=2):
    """The command fails in one line that names the culprit, and changes nothing that was there."""
    before = lake.snapshot()
    assert lake.run(command, *arguments) == status
    said = capfd.readouterr().err.strip().splitlines()
    lines = [line for line in said if not line.startswith(("Usage:", "Try ")) and line]
    errors = [line for line in lines if line.startswith(("deltacompact:", "Error:"))]
    assert len(errors) == 1, said
    for name in names:
        assert name in errors[0], errors[0]
    after = lake.snapshot()
    visible = {path for path in after if re.search(r"/stream/|table\.json|keys\.json", path)}
    assert {path: after[path] for path in visible} == {path: before.get(path) for path in visible}
    assert all(path in after for path in before)
    return errors[0]


def prepared(lake, *tables, keys=("--primary-key", "id"), create=()):
    assert lake.run("create", "t", *create) == 0
    for table in tables:
        assert lake.run("append", "t", lake.file(table)) == 0
    return ("t", *keys)


def test_an_unknown_table(lake, capfd):
    prepared(lake)
    refused(lake, capfd, "compact", "orders", names=["'orders'"])
    refused(lake, capfd, "append", "orders", lake.file(pa.table({"id": [1]})), names=["'orders'"])
    refused(lake, capfd, "show", "orders", names=["'orders'"])
    refused(lake, capfd, "export", "orders", lake.folder / "o.parquet", names=["'orders'"])
    refused(lake, capfd, "check", "orders", names=["'orders'"])


def test_an_unknown_partition(lake, capfd):
    lake.run("create", "t", "--partition-key", "day", "--primary-key", "id")
    lake.run("append", "t", lake.file(pa.table({"id": [1]})), "--partition", "day=1")
    refused(lake, capfd, "compact", "t", "--partition", "day=2", names=["day=2"])
    refused(lake, capfd, "compact", "t", "--partition", "night=1", names=["'night'"])
    refused(lake, capfd, "append", "t", lake.file(pa.table({"id": [1]})), names=["'day'"])


def test_an_unknown_column(lake, capfd):
    prepared(lake, pa.table({"id": [1], "v": [2]}))
    refused(lake, capfd, "compact", "t", "--primary-key", "ident", names=["'ident'"])
    refused(lake, capfd, "compact", "t", "--primary-key", "id", "--sort-key", "when", names=["'when'"])
    assert lake.run("compact", "t", "--primary-key", "id") == 0, "the wrong keys were not declared"


def test_no_keys_at_all(lake, capfd):
    prepared(lake, pa.table({"id": [1]}))
    refused(lake, capfd, "compact", "t", names=["'t'", "primary keys"])


def test_keys_other_than_the_tables(lake, capfd):
    prepared(lake, pa.table({"id": [1], "v": [2]}), create=("--primary-key", "id"))
    refused(lake, capfd, "compact", "t", "--primary-key", "v", names=["id", "v"])
    refused(lake, capfd, "compact", "t", "--primary-key", "id", "--sort-key", "v", names=["sort keys"])


def test_a_key_column_that_a_file_lacks(lake, capfd):
    call = prepared(lake, pa.table({"id": [1]}), pa.table({"v": [1]}))
    refused(lake, capfd, "compact", *call, names=["'id'", ".parquet"])


def test_a_delete_file_that_lacks_a_key_column(lake, capfd):
    prepared(lake, pa.table({"a": [1], "b": [1]}))
    lake.run("append", "t", lake.file(pa.table({"a": [1]})), "--operation", "delete")
    refused(lake, capfd, "compact", "t", "--primary-key", "a", "--primary-key", "b", names=["'b'", ".parquet"])


def test_a_delete_with_some_sort_columns_but_not_all(lake, capfd):
    prepared(lake, pa.table({"id": [1], "s": [1], "u": [1]}))
    lake.run("append", "t", lake.file(pa.table({"id": [1], "s": [1]})), "--operation", "delete")
    refused(lake, capfd, "compact", "t", "--primary-key", "id", "--sort-key", "s", "--sort-key", "u", names=["'u'"])


@pytest.mark.parametrize("values", [[[1]], [{"x": 1}]], ids=["list", "struct"])
def test_a_sort_key_of_a_nested_type(lake, capfd, values):
    prepared(lake, pa.table({"id": [1], "s": values}))
    refused(lake, capfd, "compact", "t", "--primary-key", "id", "--sort-key", "s", names=["'s'", ".parquet"])


def test_a_sort_key_string_over_32_bytes_is_named_with_its_length(lake, capfd):
    prepared(lake, pa.table({"id": [1, 2], "s": ["ok", "secret" * 6]}))
    names = [".parquet", "'s'", "36 bytes", "32 at most"]
    said = refused(lake, capfd, "compact", "t", "--primary-key", "id", "--sort-key", "s", names=names)
    assert "secret" not in said


def test_a_sort_key_string_over_32_bytes_is_refused_at_append_where_the_sort_keys_are_known(lake, capfd):
    lake.run("create", "t", "--primary-key", "id", "--sort-key", "s")
    path = lake.file(pa.table({"id": [1], "s": ["é" * 17]}))
    refused(lake, capfd, "append", "t", path, names=[path.name, "'s'", "34 bytes"])
    with pytest.raises(SchemaError, match="the appended table: sort key 's' has a value of 34 bytes, 32 at most"):
        lake.catalog.append("t", pa.table({"id": [1], "s": ["é" * 17]}))


def test_sort_key_strings_that_together_take_over_32_bytes(lake, capfd):
    prepared(lake, pa.table({"id": [1], "s": ["a" * 20], "u": ["b" * 13]}))
    options = ["--sort-key", "s", "--sort-key", "u"]
    names = ["33 bytes", "s string of up to 20 bytes", "u string of up to 13 bytes", ".parquet"]
    refused(lake, capfd, "compact", "t", "--primary-key", "id", *options, names=names)


def test_a_key_value_within_a_day_is_refused_at_append_with_file_and_column(lake, capfd):
    odd = pa.array([86_400_000, 1], pa.int64()).view(pa.date64())
    lake.run("create", "t", "--primary-key", "day", "--primary-key", "id")
    path = lake.folder / "odd.arrow"
    feather.write_feather(pa.table({"id": [1, 2], "day": odd}), path)
    refused(lake, capfd, "append", "t", path, names=["odd.arrow", "column 'day'", "1 ms is not a whole day"])


def test_sort_keys_over_32_bytes(lake, capfd):
    names = [f"s{place}" for place in range(5)]
    prepared(lake, pa.table({"id": [1], **{name: [1] for name in names}}))
    options = [option for name in names for option in ("--sort-key", name)]
    refused(lake, capfd, "compact", "t", "--primary-key", "id", *options, names=["40 bytes", "32"])


def test_four_int64_sort_columns_are_32_bytes(lake):
    names = [f"s{place}" for place in range(4)]
    prepared(lake, pa.table({"id": [1], **{name: [1] for name in names}}))
    options = [option for name in names for option in ("--sort-key", name)]
    assert lake.run("compact", "t", "--primary-key", "id", *options) == 0


def test_duplicate_columns(lake, capfd):
    prepared(lake)
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"])
    refused(lake, capfd, "append", "t", lake.file(twice), names=["'id'", "given-1.parquet"])


def test_incompatible_types_across_files(lake, capfd):
    prepared(lake, pa.table({"id": [1], "v": [1]}))
    other = lake.file(pa.table({"id": [2], "v": ["x"]}))
    refused(lake, capfd, "append", "t", other, names=["'v'", "string", "int64", ".parquet"])


def test_a_key_of_mixed_classes(lake, capfd):
    prepared(lake, pa.table({"id": [1]}))
    refused(lake, capfd, "append", "t", lake.file(pa.table({"id": ["1"]})), names=["'id'", ".parquet"])


@pytest.mark.parametrize(
    "column",
    [pa.array([[1]]), pa.array([{"x": 1}])],
    ids=["list", "struct"],
)
def test_types_that_cannot_be_keys(lake, capfd, column):
    lake.catalog.create_table("t")
    assert lake.run("append", "t", lake.file(pa.table({"id": column}))) == 0
    refused(lake, capfd, "compact", "t", "--primary-key", "id", names=["'id'"])


def test_decimal_keys_of_another_scale(lake, capfd):
    one, two = (pa.array([1], pa.decimal128(9, scale)) for scale in (0, 2))
    prepared(lake, pa.table({"id": one}), create=("--primary-key", "id"))
    refused(lake, capfd, "append", "t", lake.file(pa.table({"id": two})), names=["'id'", "scale"])


def test_zoned_and_naive_timestamps_as_one_key(lake, capfd):
    naive, zoned = pa.array([0], pa.timestamp("us")), pa.array([0], pa.timestamp("us", "UTC"))
    prepared(lake, pa.table({"id": naive}))
    refused(lake, capfd, "append", "t", lake.file(pa.table({"id": zoned})), names=["'id'"])


def stored_data(lake):
    (path,) = [stat.path for stat in lake.catalog.store.list("t/data/")]
    return lake.folder / "lake" / path


@pytest.mark.parametrize("damage", ["truncated", "overwritten", "empty"])
def test_a_damaged_file(lake, capfd, damage):
    call = prepared(lake, pa.table({"id": list(range(1000))}))
    path = stored_data(lake)
    data = path.read_bytes()
    path.write_bytes({"truncated": data[: len(data) // 2], "overwritten": b"x" * len(data), "empty": b""}[damage])
    refused(lake, capfd, "compact", *call, names=[path.name])


def test_a_damaged_file_is_not_appended(lake, capfd):
    prepared(lake)
    path = lake.folder / "bad.parquet"
    path.write_bytes(b"PAR1 this is no parquet file PAR1")
    refused(lake, capfd, "append", "t", path, names=["bad.parquet"])


@pytest.mark.parametrize(
    ("name", "data"),
    [("short.orc", b""), ("sealed.parquet", b"PAR1" + b"." * 40 + b"\x10\0\0\0PARE"), ("a.parquet", None)],
)
def test_what_will_never_be_readable_is_bad_input(lake, tmp_path, name, data):
    lake.catalog.create_table("t", primary_keys=["k"])
    path = tmp_path / name
    path.mkdir() if data is None else path.write_bytes(data)
    with pytest.raises(InputError, match=name) as raised:
        lake.catalog.append_files("t", [path])
    assert raised.value.exit_status == 2


@pytest.mark.parametrize("codec", ["uncompressed", "lz4"])
def test_a_flipped_bit_of_an_arrow_file_is_no_fault_of_the_store(codec):
    """Nor of this machine's memory, if a length was flipped. A job run would try again for hours."""
    store, file, refusals = MemoryStore(), io.BytesIO(), 0
    feather.write_feather(pa.table({"id": [1, 2, 3], "v": ["a" * 80, "bb", "ccc"]}), file, compression=codec)
    whole = file.getvalue()
    for at in range(len(whole)):
        store.put("flipped.arrow", whole[:at] + bytes([whole[at] ^ 0x40]) + whole[at + 1 :])
        try:
            inspect(store, "flipped.arrow", ContentType.FEATHER, decoded=True)
        except DeltaCompactError as error:
            assert isinstance(error, InputError) and "flipped.arrow" in str(error), (at, error)
            refusals += 1
    assert refusals > len(whole) // 4


def test_a_schema_that_is_nested_too_deeply_is_no_fault_of_the_store(tmp_path):
    type_ = pa.int64()
    for _ in range(100):
        type_ = pa.struct([("a", type_)])
    pq.write_table(pa.table({"id": [1], "v": pa.array([None], type_)}), tmp_path / "deep.parquet")
    store = MemoryStore()
    store.put("deep.parquet", (tmp_path / "deep.parquet").read_bytes())
    with pytest.raises(InputError, match=r"deep\.parquet cannot be read: .*too deeply nested"):
        inspect(store, "deep.parquet", ContentType.PARQUET)


def test_a_gzip_page_that_ends_in_an_error_is_no_fault_of_the_store(lake, capfd):
    call = prepared(lake)
    path = lake.folder / "flipped.parquet"
    pq.write_table(pa.table({"id": list(range(100)), "v": ["x"] * 100}), path, compression="gzip")
    chunk = pq.read_metadata(path).row_group(0).column(1)
    page = chunk.dictionary_page_offset + chunk.total_compressed_size - 8
    whole = path.read_bytes()
    path.write_bytes(whole[:page] + bytes([whole[page] ^ 1]) + whole[page + 1 :])  # in the checksum of the page
    assert lake.run("append", "t", path) == 0
    refused(lake, capfd, "compact", *call, names=["flipped.parquet", "column 'v'", "deltacompact retract"])


def test_a_file_that_vanished(lake, capfd):
    call = prepared(lake, pa.table({"id": [1]}))
    path = stored_data(lake)
    path.unlink()
    before = lake.catalog.state("t", lake.catalog.partitions("t")[0])
    assert lake.run("compact", *call) == 2
    assert path.name in capfd.readouterr().err
    assert lake.catalog.state("t", lake.catalog.partitions("t")[0]) == before


def test_a_file_that_is_not_there(lake, capfd):
    prepared(lake)
    refused(lake, capfd, "append", "t", lake.folder / "nowhere.parquet", names=["nowhere.parquet"])


def test_an_unknown_extension(lake, capfd):
    prepared(lake)
    refused(lake, capfd, "append", "t", lake.folder / "rows.xlsx", names=["rows.xlsx", ".parquet"])


def test_a_csv_whose_value_is_not_of_the_columns_type(lake, capfd):
    prepared(lake, pa.table({"id": [1]}))
    path = lake.folder / "bad.csv"
    path.write_text("id\nnot a number\n")
    refused(lake, capfd, "append", "t", path, names=["bad.csv"])


def test_a_json_array_is_told_from_json_lines(lake, capfd):
    prepared(lake, pa.table({"id": [1]}))
    path = lake.folder / "array.json"
    path.write_text('[{"id": 1}, {"id": 2}]')
    refused(lake, capfd, "append", "t", path, names=["array.json", "one JSON object a line", "jq -c '.[]'"])


def test_the_separator_of_a_file_with_another_one_is_told(lake, capfd):
    prepared(lake, create=("--primary-key", "id"))
    path = lake.folder / "semicolons.csv"
    path.write_text("id;status\n1;new\n")
    refused(lake, capfd, "append", "t", path, names=["its header has ';' and no ','", "write commas"])


def test_of_a_wide_file_only_the_first_columns_are_told(lake, capfd):
    prepared(lake, create=("--primary-key", "id"))
    wide = lake.file(pa.table({f"c{number}": [1] for number in range(1000)}))
    refused(
        lake, capfd, "append", "t", wide, names=["key column 'id' is missing (columns: c0, c1, ", "c29, and 970 more)"]
    )


def test_a_format_that_is_read_but_not_written(lake, capfd):
    prepared(lake, pa.table({"id": [1]}))
    refused(
        lake,
        capfd,
        "export",
        "t",
        lake.folder / "now.jsonl",
        names=["now.jsonl: '.jsonl' files are not written, only .parquet, .pq, .feather, .arrow, .ipc, .orc, .csv"],
    )


def test_a_table_without_partition_keys_and_data(lake, capfd):
    prepared(lake)
    said = refused(lake, capfd, "retract", "t", "--position", 7, names=["'t'"])
    assert said.endswith("table 't' holds no data")


def test_a_partition_value_that_disagrees(lake, capfd):
    lake.run("create", "t", "--partition-key", "day", "--primary-key", "id")
    wrong = lake.file(pa.table({"id": [1, 2], "day": ["mon", "tue"]}))
    refused(lake, capfd, "append", "t", wrong, "--partition", "day=mon", names=["'day'", "'mon'", ".parquet"])


def test_a_position_that_is_not_greater(lake, capfd):
    prepared(lake)
    assert lake.run("append", "t", lake.file(pa.table({"id": [1]})), "--position", 10) == 0
    for position in (10, 9, -1):
        refused(lake, capfd, "append", "t", lake.file(pa.table({"id": [1]})), f"--position={position}", names=["10"])
    refused(lake, capfd, "append", "t", lake.file(pa.table({"id": [1]})), "--position", 2**63, names=["int64"])


@pytest.mark.parametrize(
    "option", ["--hash-buckets=0", "--hash-buckets=x", "--rows-per-file=-1", "--rows-per-round=0", "--executor=spark"]
)
def test_bad_numbers_in_options(lake, capfd, option):
    call = prepared(lake, pa.table({"id": [1]}))
    refused(lake, capfd, "compact", *call, option, names=[option.partition("=")[0]])


@pytest.mark.parametrize(
    "arguments",
    [
        {"rows_per_compacted_file": 0},
        {"rows_per_primary_key_index_file": -5},
        {"hash_bucket_count": 1.5},
        {"desired_sla": 0},
        {"compacted_file_content_type": "xlsx"},
        {"compacted_file_content_type": "json"},
    ],
    ids=str,
)
def test_bad_arguments_of_compact(lake, arguments):
    prepared(lake, pa.table({"id": [1]}))
    with pytest.raises(deltacompact.InputError) as error:
        deltacompact.compact("t", ["id"], delta_catalog_client=lake.catalog, **arguments)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("field", ["rows_per_round", "memory_per_task_bytes", "target_file_bytes", "task_retries"])
def test_bad_settings(field):
    with pytest.raises(deltacompact.InputError, match=field):
        deltacompact.Settings(**{field: -1})


def test_a_table_of_a_newer_format_version(lake, capfd):
    prepared(lake, pa.table({"id": [1]}))
    table = lake.folder / "lake/t/table.json"
    document = json.loads(table.read_text())
    table.write_text(json.dumps({**document, "format": 99}))
    refused(lake, capfd, "compact", "t", "--primary-key", "id", names=["table.json", "99"])


def test_a_log_entry_of_a_newer_format_version(lake, capfd):
    prepared(lake, pa.table({"id": [1]}))
    entry = lake.folder / "lake/t/stream/0/00000000000000000001.json"
    document = json.loads(entry.read_text())
    entry.write_text(json.dumps({**document, "format": 99}))
    refused(lake, capfd, "compact", "t", "--primary-key", "id", names=["00000000000000000001.json", "99"])


def test_a_table_that_exists_otherwise(lake, capfd):
    prepared(lake, create=("--primary-key", "id"))
    refused(lake, capfd, "create", "t", "--primary-key", "v", names=["'t'"], status=3)
    assert lake.run("create", "t", "--primary-key", "id") == 0, "declaring the same again is no conflict"


def test_a_destination_refuses_appends_and_other_sources(lake, capfd):
    call = prepared(lake, pa.table({"id": [1]}))
    assert lake.run("compact", *call, "--destination", "d") == 0
    refused(lake, capfd, "append", "d", lake.file(pa.table({"id": [1]})), names=["'d'", "'t'"])
    lake.run("create", "other", "--primary-key", "id")
    lake.run("append", "other", lake.file(pa.table({"id": [1]})))
    refused(lake, capfd, "compact", "other", "--destination", "d", names=["'d'", "'t'", "'other'"])


def test_a_catalog_that_cannot_be_used(tmp_path, capfd):
    (tmp_path / "file").write_text("")
    for uri, named in [("ftp://host/x", "ftp"), ("s3://", "s3://"), (str(tmp_path / "file"), "file")]:
        assert cli.run(["create", uri, "t"]) == 2
        assert named in capfd.readouterr().err


def test_a_bucket_that_does_not_exist(moto_endpoint, s3_catalog_uri, capfd):
    for command in (["show", "s3://no-such-bucket/x"], ["create", "s3://no-such-bucket/x", "t"]):
        assert cli.run(command) == 2
        said = capfd.readouterr().err.strip()
        assert "no-such-bucket" in said and "\n" not in said


def test_no_credentials(moto_endpoint, monkeypatch, tmp_path, capfd):
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cli.run(["show", "s3://some-bucket/x"]) == 2
    said = capfd.readouterr().err.strip()
    assert "credentials" in said and "\n" not in said


def test_an_unexpected_error_is_one_line_and_debug_shows_the_traceback(lake, capfd, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("surprise")

    monkeypatch.setattr(deltacompact.DeltaStreamCatalog, "tables", broken)
    assert lake.run("show") == 1
    said = capfd.readouterr().err
    assert "surprise" in said and "Traceback" not in said
    assert lake.run("show", "--debug") == 1
    assert "Traceback" in capfd.readouterr().err


@pytest.mark.parametrize(
    "column",
    [
        pa.array([Decimal(100)], pa.decimal128(5, -2)),
        pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
    ],
    ids=lambda column: str(column.type),
)
def test_a_column_that_parquet_does_not_hold_is_named_at_append(lake, column):
    lake.catalog.create_table("t", primary_keys=["id"])
    with pytest.raises(InputError, match=r"column 'odd' is .*, which .*parquet files cannot hold"):
        lake.catalog.append("t", pa.table({"id": [1], "odd": column}))
    assert lake.catalog.read("t").num_rows == 0


def test_a_name_that_is_too_long_for_a_disk_is_refused_by_name(lake):
    with pytest.raises(InputError, match=r"'ttt.*…': a name of 300 bytes is too long"):
        lake.catalog.create_table("t" * 300, primary_keys=["id"])
    with pytest.raises(NotFoundError, match="does not exist"):
        lake.catalog.read("t" * 300)
    lake.catalog.create_table("t", primary_keys=["id"], partition_keys=["day"])
    with pytest.raises(InputError, match=r"'day=xxx.*…': a name of 304 bytes is too long"):
        lake.catalog.append("t", pa.table({"id": [1]}), {"day": "x" * 300})
