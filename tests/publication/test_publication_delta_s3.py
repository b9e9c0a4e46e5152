"""A table on S3 that is published as Delta on S3: commits are put if absent there, too."""

from __future__ import annotations

import deltalake
import pyarrow as pa
import pytest
from publications import LOCAL, T, plain

import deltacompact
from deltacompact import InputError
from deltacompact.maintenance.vacuum.vacuum import vacuum


def by_delta(uri, endpoint):
    options = {"AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true"}
    table = deltalake.DeltaTable(uri, storage_options=options)
    return plain(pa.table(deltalake.QueryBuilder().register("t", table).execute("select * from t")).to_pylist())


def test_two_publishers_on_s3_lose_nothing(s3_catalog_uri, s3_endpoint):
    catalogs = [deltacompact.open_catalog(s3_catalog_uri) for _ in range(2)]
    catalogs[0].create_table(T, ["day"], ["id"])
    target = f"{s3_catalog_uri.rstrip('/')}-out"
    other = deltacompact.open_catalog(f"{target}/b")
    other.create_table("b", primary_keys=["id"])
    with pytest.raises(InputError, match=r"would delete, such as \S+: name a new or empty folder"):
        catalogs[0].publish(T, f"delta://{target}")
    target += "-2"
    catalogs[0].append(T, pa.table({"id": range(20)}), {"day": "a b%/é"})
    deltacompact.compact(T, delta_catalog_client=catalogs[0], settings=LOCAL)
    assert catalogs[0].publish(T, f"delta://{target}").snapshot == 0
    for number, catalog in enumerate(catalogs):
        catalog.append(T, pa.table({"id": [number]}), {"day": "a b%/é"}, "delete")
        result = deltacompact.compact(T, delta_catalog_client=catalog, settings=LOCAL)
        assert (result.publication.error, result.publication.snapshot) == (None, number + 1)
    assert by_delta(target, s3_endpoint) == plain([{"id": id_, "day": "a b%/é"} for id_ in range(2, 20)])
    vacuum(catalogs[0], T, age_min_s=0, force=True)
    assert len(by_delta(target, s3_endpoint)) == 18
    assert catalogs[1].publish(T).snapshot is None


@pytest.mark.parametrize("below", ["//x", "/./x", "/../x"])
def test_a_catalog_whose_files_others_would_not_find_is_not_published(s3_catalog_uri, below):
    """delta-rs and PyIceberg refuse empty names in paths, and read another object for the others."""
    catalog = deltacompact.open_catalog(s3_catalog_uri + below)
    table = catalog.create_table(T, primary_keys=["id"])
    table.append(pa.table({"id": [1]}))
    table.compact(settings=LOCAL)
    assert table.read().num_rows == 1
    with pytest.raises(InputError, match="cannot be read by other engines"):
        table.publish(f"delta://{s3_catalog_uri}-out")
    assert table.publication is None
