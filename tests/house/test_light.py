"""Light to install and to start: what a table on a local disk does not need may be missing, and is not imported.

ray, pyspark, pyiceberg, boto3, pandas, …   cannot be imported: tables on local disks work all the same
--executor ray                              ray is not installed: pip install deltacompact
validate                                    pyspark is not installed: pip install 'deltacompact[spark]'
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pyarrow as pa
import pytest
from iceberg_lake import Lake

import deltacompact

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
ELSEWHERE = ("boto3", "obstore", "openlineage", "opentelemetry", "pandas", "pyiceberg", "pyspark", "ray")
"""What a table on a local disk is compacted without."""

BLOCKED = f"""
import sys
from importlib.abc import MetaPathFinder

class NotInstalled(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {ELSEWHERE}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, NotInstalled())
"""


def process(program, *arguments, folder=None):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stdout, done.stderr


PYTHON = """
import deltacompact, pyarrow as pa

catalog = deltacompact.open_catalog("lake")
catalog.create_table("t", partition_keys=["day"], primary_keys=["id"])
day = {"day": "1"}
catalog.append("t", pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]}), day)
catalog.append("t", pa.table({"id": [2], "v": ["B"]}), day)
catalog.append("t", pa.table({"id": [1]}), day, operation="delete")
(session,) = deltacompact.compact("t", delta_catalog_client=catalog).sessions
assert (session.live, session.superseded, session.deleted) == (2, 1, 1), session
assert sorted(row["v"] for row in catalog.read("t").to_pylist()) == ["B", "c"]
assert deltacompact.check(catalog, "t")[0].problems == ()
catalog.append("t", pa.table({"id": [3], "v": ["C"]}), day)
for doing in (
    lambda: deltacompact.compact("t", delta_catalog_client=catalog, settings=deltacompact.Settings(executor="ray")),
    lambda: deltacompact.open_catalog("iceberg://prod"),
    lambda: deltacompact.open_catalog("s3://bucket/lake").tables(),
    lambda: __import__("deltacompact.spark.session"),
):
    try:
        doing()
    except deltacompact.InputError as error:
        print(error)
"""

MISSING = """\
ray is not installed: pip install deltacompact
pyiceberg is not installed: pip install deltacompact
boto3 is not installed: pip install deltacompact
pyspark is not installed: pip install 'deltacompact[spark]'
"""


def test_python_works_without_what_local_tables_do_not_need(tmp_path):
    status, said, errors = process(BLOCKED + PYTHON, folder=tmp_path)
    assert (status, said) == (0, MISSING), errors


COMMANDS = [
    ("create lake t --primary-key id", 0),
    ("append lake t rows.csv", 0),
    ("append lake t gone.csv --operation delete", 0),
    ("plan lake t", 0),
    ("compact lake t", 0),
    ("check lake t", 0),
    ("read lake t", 0),
    ("export lake t now.parquet", 0),
    ("show lake t --versions", 0),
    ("publish lake t", 0),
    ("vacuum lake t", 0),
    ("rehash lake t --hash-buckets 2", 0),
    ("show lake", 0),
    ("rehash lake t --hash-buckets 3 --executor ray", 2),
    ("show iceberg://prod db.t", 2),
    ("show s3://bucket/lake", 2),
    ("validate lake t", 2),
    ("demo", 2),
]


def test_the_command_line_works_without_them_too(tmp_path):
    (tmp_path / "rows.csv").write_text("id,v\n1,a\n2,b\n")
    (tmp_path / "gone.csv").write_text("id\n1\n")
    program = (
        BLOCKED
        + f"""
from deltacompact import cli
for words, status in {COMMANDS}:
    done = cli.run(words.split())
    assert done == status, (words, done)
"""
    )
    status, said, errors = process(program, folder=tmp_path)
    assert status == 0, errors
    assert '{"id": 2, "v": "b"}' in said
    missing = [line.removeprefix("deltacompact: ") + "\n" for line in errors.splitlines() if "not installed" in line]
    assert missing == [*MISSING.splitlines(True), MISSING.splitlines(True)[-1]]


def test_extras_say_all_that_users_need():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    of_users = sorted(set(extras) - {"all", "bench", "docs", "test"})
    assert extras["all"] == [f"deltacompact[{','.join(of_users)}]"], "a new extra: add it to [all]"


IMPORTED = """
import sys
from deltacompact.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end
print(*sys.modules)
"""
UNUSED = [*ELSEWHERE, "pyarrow.dataset", "deltacompact.iceberg", "deltacompact.maintenance", "deltacompact.change_feed"]
_OF_WORK = ["psutil", "pyarrow.compute", "pyarrow.fs", "pyarrow.parquet"]
_OF_WORK += [
    f"deltacompact.{name}" for name in ("delta_streams.appending", "running", "session.driver", "sinks", "steps")
]
"""What is planned does without Arrow's functions and what carries out plans."""
_OF_OTHER_CATALOGS = ["deltacompact.delta_streams", "pyiceberg.catalog.rest"]
_MODES = [f"deltacompact.iceberg_modes.{name}.{name}" for name in ("convert", "maintain", "upsert")]


def imported_by(folder, words, program=IMPORTED):
    status, said, errors = process(program, *words.split(), folder=folder)
    assert status == 0, errors
    return set(said.splitlines()[-1].split())


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """A delta stream `lake t`, and a table of an Iceberg catalog that is configured in the folder."""
    folder = tmp_path_factory.mktemp("light")
    catalog = deltacompact.open_catalog(folder / "lake")
    catalog.create_table("t", primary_keys=["id"])
    catalog.append("t", pa.table({"id": [1, 2]}))
    deltacompact.compact("t", delta_catalog_client=catalog)
    catalog.append("t", pa.table({"id": [2]}), operation="delete")
    lake = Lake(folder / "prod", "prod")
    lake.catalog.create_namespace("db")
    lake.create("db.t", pa.schema([("id", pa.int64())]))
    lake.append("db.t", pa.table({"id": [1, 2]}))
    described = {"type": "sql", "uri": f"sqlite:///{lake.database}", "warehouse": lake.warehouse}
    lines = [f"    {name}: {value}" for name, value in described.items()]
    (folder / ".pyiceberg.yaml").write_text("\n".join(["catalog:", "  prod:", *lines]))
    return folder


@pytest.mark.parametrize(
    ("words", "most", "not_imported"),
    [
        ("show lake t", 470, [*ELSEWHERE, *_OF_WORK]),
        ("plan lake t", 490, [*ELSEWHERE, "pyarrow.dataset", "deltacompact.iceberg", *_OF_WORK]),
        ("compact lake t", 605, [*UNUSED, "rich.progress"]),
        ("compact lake t --json --memory 1GiB", 535, [*UNUSED, "rich"]),
        ("show iceberg://prod db.t", 1_120, [*_MODES, "boto3", "pandas", "ray", "requests", *_OF_OTHER_CATALOGS]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_command_imports_what_it_needs(tables, words, most, not_imported):
    modules = imported_by(tables, words)
    assert modules & set(not_imported) == set()
    assert len(modules) <= most


COLLECTED = """
import gc
passes = []
gc.callbacks.append(lambda phase, found: passes.append(found["generation"]) if phase == "start" else None)
from deltacompact.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code and gc.isenabled(), end
print(passes.count(2), len(passes))
"""


def test_what_is_imported_for_an_iceberg_table_is_not_looked_through_for_garbage(tables):
    """Five passes over half a million objects took a fifth of the command's CPU."""
    whole, _ = passes_of(tables, "show iceberg://prod db.t")
    assert whole <= 1


def test_a_small_compaction_seldom_looks_for_garbage(tables):
    """Its objects are of libraries. It looked 124 times."""
    assert passes_of(tables, "compact lake t")[1] <= 40


def passes_of(folder, words):
    """How often a command looks for garbage among all objects, and among any."""
    status, said, errors = process(COLLECTED, *words.split(), folder=folder)
    assert status == 0, errors
    return tuple(map(int, said.splitlines()[-1].split()))


DISPATCHED = """
import sys
from sessions.cli.dispatch import dispatcher_of
dispatcher_of("queue", "state")
print(*sys.modules)
"""


def test_a_dispatcher_of_this_machine_imports_no_cloud(tmp_path):
    assert imported_by(tmp_path, "", DISPATCHED) & {"boto3", "botocore", "pandas", "ray", "yaml"} == set()


def test_a_worker_of_spark_that_reads_or_writes_rows_imports_no_pyiceberg(tmp_path):
    """Spark starts one for each plan and commit of our data source; PyIceberg was half of its start."""
    source = "import sys, deltacompact.spark.data_source; print(*sys.modules)"
    assert imported_by(tmp_path, "", source) & {"pyiceberg", "boto3", "ray"} == set()


def test_who_reads_documents_imports_no_engine(tmp_path):
    read = "import sys, sessions.documents.instruction; print(*sys.modules)"
    assert imported_by(tmp_path, "", read) & {"deltacompact.job", "deltacompact._kernels", "numpy", "pyarrow"} == set()
