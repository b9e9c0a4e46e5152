"""Fixtures that are shared: one Ray cluster and one Spark session for the whole run, and an S3 of our own."""

from __future__ import annotations

import os

import hypothesis
import pytest
from spark_fixtures import catalog, moto_endpoint, s3_bucket, s3_catalog_uri, s3_endpoint, spark  # noqa: F401  (fixtures)

os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
os.environ.setdefault("RAY_local_fs_capacity_threshold", "1")  # Ray spills nothing to a disk that is 95 % full
hypothesis.settings.register_profile(
    "default", deadline=None, print_blob=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("default")


WORKERS_KEPT = 16
"""Ray ends workers that idle above so many: as many as CPUs, without this. Workers belong to one driver, so with
several drivers at a time each stage of each of them waited for new processes, which import everything for seconds."""


@pytest.fixture(scope="session")
def ray_cluster():
    """The address of a cluster of two CPUs; this process is connected to it as its executor would."""
    import ray

    from deltacompact.executors.ray import WORKER_ENVIRONMENT

    os.environ.update(WORKER_ENVIRONMENT)
    context = ray.init(
        address="local",
        num_cpus=2,
        object_store_memory=300 << 20,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        _system_config={"num_workers_soft_limit": WORKERS_KEPT},
    )
    yield context.address_info["gcs_address"]
    ray.shutdown()
