"""What Spark loads from Maven to read Iceberg tables, at the versions that we test. The one place that names them.

spark_session(spark__jars__packages=",".join([ICEBERG_RUNTIME, SQLITE_JDBC]), spark__sql__extensions=ICEBERG_EXTENSIONS)
"""

from __future__ import annotations

ICEBERG_RUNTIME = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
"""Of PySpark 4.1 and its Scala. test_spark_iceberg_jar.py says whether Maven has one for the PySpark that we pin."""
SQLITE_JDBC = "org.xerial:sqlite-jdbc:3.50.3.0"
"""For catalogs that PyIceberg keeps in sqlite."""
ICEBERG_EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
"""Iceberg's SQL: procedures, branches, partition evolution."""
