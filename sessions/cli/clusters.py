"""The clusters that a dispatcher may launch, as its options say: none by default.

--ray-clusters cluster.yaml             Ray's cluster launcher, from this template
--kuberay deltacompact:0.2.0            KubeRay RayJobs of this image, by kubectl
--prices prices.toml --node-type r6in.4xlarge
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deltacompact.cli.arguments import all_of

if TYPE_CHECKING:
    from sessions.launchers.kuberay import KubeRayLauncher
    from sessions.launchers.launchers import InBackground
    from sessions.launchers.ray_cluster import RayClusterLauncher
    from sessions.planning.prices import Offer, Prices

cluster_options = all_of(
    click.option(
        "--ray-clusters",
        type=click.Path(exists=True, dir_okay=False),
        metavar="CLUSTER.yaml",
        help="Sessions may run on clusters of Ray's cluster launcher, made from this template.",
    ),
    click.option("--kuberay", metavar="IMAGE", help="Sessions may run as KubeRay RayJobs of this image, by kubectl."),
    click.option("--namespace", default="default", show_default=True, metavar="NAME", help="Namespace of the RayJobs."),
    click.option("--service-account", metavar="NAME", help="Service account of the pods. Default: the namespace's."),
    click.option(
        "--pod-secret",
        metavar="NAME",
        help="Secret whose entries are variables of the pods: credentials, for instance.",
    ),
    click.option(
        "--prices",
        type=click.Path(exists=True, dir_okay=False),
        metavar="PRICES.toml",
        help="Node types and what they cost. Default: the dated table that comes with the package.",
    ),
    click.option(
        "--node-type",
        "node_types",
        multiple=True,
        metavar="NAME",
        help="Use only workers of this type; repeatable. Default: every type that has a price and fits the image.",
    ),
    click.option("--on-demand", is_flag=True, help="Use on-demand instances as workers. Default: spot."),
)
"""The options of `Clusters`."""


@dataclass(frozen=True)
class Clusters:
    """What the options mean. Raises InputError where they do not fit together."""

    max_workers: int
    state_uri: str
    folder: Path
    ray_clusters: str | None = None
    kuberay: str | None = None
    namespace: str = "default"
    service_account: str | None = None
    pod_secret: str | None = None
    prices: str | None = None
    node_types: tuple[str, ...] = ()
    on_demand: bool = False

    def __post_init__(self) -> None:
        from deltacompact.base.errors import InputError

        if (self.ray_clusters or self.kuberay) and not self.state_uri.startswith("s3://"):
            raise InputError("--ray-clusters and --kuberay want a state on S3: clusters must reach it")
        if not (self.ray_clusters or self.kuberay) and (self.prices or self.node_types or self.on_demand):
            raise InputError("--prices, --node-type and --on-demand want clusters: add --ray-clusters or --kuberay")

    @functools.cached_property
    def launchers(self) -> dict[str, RayClusterLauncher | KubeRayLauncher]:
        """The launchers, by the names that plans give them."""
        found: dict[str, RayClusterLauncher | KubeRayLauncher] = {}
        if self.ray_clusters:
            found["ray_cluster"] = self._ray_clusters(self.ray_clusters)
        if self.kuberay:
            found["kuberay"] = self._kuberay(self.kuberay)
        return found

    def _ray_clusters(self, path: str) -> RayClusterLauncher:
        import yaml

        from deltacompact.base.errors import InputError
        from deltacompact.base.wording import one_line
        from deltacompact.storage.s3_access import plain_environment
        from sessions.launchers import ray_jobs
        from sessions.launchers.ray_cluster import ClusterOptions, RayClusterLauncher, check_template

        folder = self.folder / "clusters"
        options = ClusterOptions(spot=not self.on_demand, environment=plain_environment())
        try:
            template = yaml.safe_load(Path(path).read_text())
            check_template(template, self._table, options)
        except (InputError, yaml.YAMLError, OSError, ValueError) as error:
            raise InputError(f"--ray-clusters {path}: {one_line(error)}") from None
        ray_jobs.check_installed()
        return RayClusterLauncher(template, self._table, folder, self.state_uri, options)

    def _kuberay(self, image: str) -> KubeRayLauncher:
        from importlib.metadata import version

        from deltacompact.storage.s3_access import plain_environment
        from sessions.launchers.kuberay import KubeOptions, KubeRayLauncher

        options = KubeOptions(
            image,
            version("ray"),
            self.namespace,
            self.service_account,
            secret=self.pod_secret,
            environment=plain_environment(),
        )
        return KubeRayLauncher(self._table, self.state_uri, options)

    @property
    def in_background(self) -> dict[str, InBackground]:
        from sessions.launchers.launchers import InBackground

        return {name: InBackground(launcher) for name, launcher in self.launchers.items()}

    @property
    def offers(self) -> tuple[Offer, ...]:
        from deltacompact.base.errors import InputError
        from sessions.planning.prices import offers_of_clusters

        try:
            return tuple(
                offer
                for name in self.launchers
                for offer in offers_of_clusters(
                    self._table, name, self.max_workers, not self.on_demand, self.node_types or None
                )
            )
        except ValueError as error:
            raise InputError(str(error)) from None

    @property
    def prices_dated(self) -> str:
        """Which prices plans were made by; "" where nothing costs anything."""
        return f"{self._table.region}, {self._table.date}" if self.launchers else ""

    @functools.cached_property
    def _table(self) -> Prices:
        from deltacompact.base.errors import InputError
        from sessions.planning.prices import DEFAULT, read_prices

        try:
            return read_prices(Path(self.prices) if self.prices else DEFAULT)
        except ValueError as error:
            raise InputError(str(error)) from None
