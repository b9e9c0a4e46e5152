"""Lakes for the tests of this room."""

from iceberg_fixtures import lake, silence_is_short, spark_lake  # noqa: F401  (fixtures)
