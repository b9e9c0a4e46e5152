"""A publication on S3: the delta catalog in a bucket, the Iceberg table in Glue, both moto's."""

from __future__ import annotations

import pyarrow as pa
from publications import LOCAL, T

import deltacompact
from deltacompact.maintenance.vacuum.vacuum import vacuum


def test_a_table_on_s3_is_published_to_glue(glue_lake, moto_endpoint, monkeypatch):
    from pyiceberg import catalog as configured
    from pyiceberg.utils.config import Config

    lake, table_id = glue_lake
    bucket = lake.catalog.properties["warehouse"].removesuffix("/warehouse")
    options = {
        "TYPE": "glue",
        **{name.upper().replace(".", "__").replace("-", "_"): value for name, value in lake.catalog.properties.items()},
    }
    for option, value in options.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__GLUED__{option}", value)
    monkeypatch.setattr(configured, "_ENV_CONFIG", Config())
    catalog = deltacompact.open_catalog(f"{bucket}/delta streams")
    catalog.create_table(T, ["day"], ["id"])
    for day in ("2024/01", None):
        catalog.append(T, pa.table({"id": list(range(50))}), {"day": day})
    deltacompact.compact(T, delta_catalog_client=catalog, settings=LOCAL)
    assert catalog.publish(T, f"iceberg://glued/{table_id}").files_added == 2
    catalog.append(T, pa.table({"id": [3]}), {"day": "2024/01"}, "delete")
    result = deltacompact.compact(T, delta_catalog_client=catalog, settings=LOCAL)
    assert (result.publication.error, result.publication.dead_row_files_added) == (None, 1)
    vacuum(catalog, T, age_min_s=0, force=True)
    rows = lake.rows(table_id)
    assert sum(row["day"] is None for row in rows) == 50
    assert sorted(row["id"] for row in rows if row["day"] == "2024/01") == [0, 1, 2, *range(4, 50)]
