"""The options of a rewrite, under the names and with the defaults of Iceberg's own `rewrite_data_files`.

    {"target-file-size-bytes": "134217728", "delete-file-threshold": "1"}  ->  RewriteOptions(…)

An unknown name, or a value that does not fit, is refused before any work.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deltacompact.base.errors import InputError
from deltacompact.base.options import option
from deltacompact.iceberg_modes.options import (
    CLUSTER_COLUMNS,
    ENGINE,
    FACTOR,
    FLAG,
    MAX_COMMITS,
    SHARE,
    SORT_ORDER,
    TEXT,
    WHOLE,
    WHOLE_OR_ZERO,
    OneOf,
    chosen_values,
    max_commits_option,
    max_failed_commits_option,
    partial_progress_option,
)
from deltacompact.layout.cluster_by import ClusterColumn

NAME = "rewrite"
GB = 1 << 30
TARGET_FILE_BYTES = 512 << 20
TARGET_PROPERTY = "write.target-file-size-bytes"
CLUSTER_PROPERTY = "deltacompact.cluster-by"


class Strategy(enum.StrEnum):
    """Whether rows keep their order."""

    BINPACK = "binpack"
    SORT = "sort"


class JobOrder(enum.StrEnum):
    """In which order groups are rewritten and committed."""

    NONE = "none"
    BYTES_ASC = "bytes-asc"
    BYTES_DESC = "bytes-desc"
    FILES_ASC = "files-asc"
    FILES_DESC = "files-desc"
    HEAT_DESC = "heat-desc"


@dataclass(frozen=True, slots=True)
class RewriteOptions:
    """What is rewritten, and how it is committed. Sizes are those of stored files. None: no limit, or not asked for."""

    target_file_bytes: int = option(
        "target-file-size-bytes",
        WHOLE,
        TARGET_FILE_BYTES,
        "about the size of the files that are written",
        unit="bytes",
        says=f"the table's `{TARGET_PROPERTY}`, else 512 MiB",
    )
    min_file_bytes: int = option(
        "min-file-size-bytes",
        WHOLE_OR_ZERO,
        TARGET_FILE_BYTES * 3 // 4,
        "smaller files are rewritten, laid-out ones below half",
        unit="bytes",
        says="75 % of the target",
    )
    max_file_bytes: int = option(
        "max-file-size-bytes",
        WHOLE,
        TARGET_FILE_BYTES * 9 // 5,
        "larger files are rewritten",
        unit="bytes",
        says="180 % of the target",
    )
    min_input_files: int = option(
        "min-input-files", WHOLE, 5, "a group of at least so many candidates is rewritten, whatever their size"
    )
    max_group_bytes: int = option(
        "max-file-group-size-bytes",
        WHOLE,
        100 * GB,
        "most bytes of a group, where rows keep their order",
        unit="bytes",
        says="100 GiB",
    )
    max_group_files: int | None = option(
        "max-file-group-input-files", WHOLE, None, "most files of a group, likewise", says="any number"
    )
    max_files: int | None = option("max-files-to-rewrite", WHOLE, None, "most files of a run", says="any number")
    delete_file_threshold: int | None = option(
        "delete-file-threshold",
        WHOLE,
        None,
        "a file is rewritten if at least so many delete files may apply to it",
        says="files are not rewritten for that",
    )
    delete_ratio_threshold: float = option(
        "delete-ratio-threshold",
        SHARE,
        0.3,
        "a file is rewritten if at least this share of its rows is deleted by position",
    )
    rewrite_all: bool = option("rewrite-all", FLAG, False, "every file is rewritten")
    partial_progress: bool = partial_progress_option()
    max_commits: int = max_commits_option()
    max_failed_commits: int = max_failed_commits_option()
    max_concurrent_groups: int | None = option(
        "max-concurrent-file-group-rewrites", WHOLE, None, "most groups at a time", says="one for each slot"
    )
    remove_dangling_deletes: bool = option(
        "remove-dangling-deletes",
        FLAG,
        False,
        "at the end, remove deletes of all partitions that apply to nothing; otherwise only those of rewritten ones",
    )
    output_spec_id: int | None = option(
        "output-spec-id", WHOLE_OR_ZERO, None, "the partition spec of what is written", says="each file's own"
    )
    where: str | None = option(
        "where", TEXT, None, "only files that may have rows for which it is true", says="all files"
    )
    use_starting_sequence_number: bool = option(
        "use-starting-sequence-number",
        FLAG,
        True,
        "new files have the planned snapshot's sequence number, so later equality deletes apply to them",
    )
    job_order: JobOrder = option(
        "rewrite-job-order",
        OneOf(JobOrder),
        JobOrder.NONE,
        "`bytes-asc`, `bytes-desc`, `files-asc` or `files-desc`: which groups come first; `heat-desc`: those whose "
        "readers gain most, by the table's heat",
        says="`none`",
    )
    merge_uncompared: bool = option(
        "merge-uncompared", FLAG, False, "in a table that is upserted, rewrite files, too, that no upsert has compared"
    )
    cluster_by: tuple[ClusterColumn, ...] = option(
        "cluster-by",
        CLUSTER_COLUMNS,
        (),
        "up to four columns by which rows are divided into files and ordered inside, each with a weight if wanted: "
        "`day*3,customer`",
        says=f"the table's `{CLUSTER_PROPERTY}`, else rows keep their order",
    )
    write_amplification_max: float | None = option(
        "write-amplification-max",
        FACTOR,
        None,
        "files that overlap are rewritten up to so many times the bytes that came, less those that former runs "
        "rewrote for it; the rest waits. Partitions that overlap most take what others leave, by `heat-desc` the "
        "hottest",
        says="4",
    )
    strategy: Strategy | None = option(
        "strategy",
        OneOf(Strategy),
        None,
        "`binpack`: rows keep their order; `sort`: they are sorted by `sort-order`",
        says="`binpack`, or by `cluster-by`",
    )
    sort_order: str | None = option(
        "sort-order",
        SORT_ORDER,
        None,
        "as Spark's procedure has it: `day DESC NULLS LAST, bucket(4, id)`, `zorder(a, b)`, `hilbert(a, b)`",
        says="the table's own order",
    )
    readable_by: str | None = option(
        "readable-by",
        ENGINE,
        None,
        "`delete-file-threshold=1`, unless this engine reads all kinds of deletes",
        says="any",
    )

    @property
    def arranges(self) -> bool:
        """Whether rows get another order."""
        return bool(self.cluster_by) or self.strategy is Strategy.SORT

    @property
    def laid_out_file_bytes_min(self) -> int:
        """Smaller files of a layout are small. Leaves of a tree differ in size, and ordered rows take fewer bytes."""
        return self.min_file_bytes // 2

    @property
    def written_file_bytes_max(self) -> int:
        """The size that a written file may reach: halfway between target and maximum, as Iceberg has it."""
        return self.target_file_bytes + (self.max_file_bytes - self.target_file_bytes) // 2


def rewrite_options(chosen: Mapping[str, Any], properties: Mapping[str, str]) -> RewriteOptions:
    """The options by their Iceberg names. Properties of the table are the defaults of two of them.

    Raises InputError naming the option.
    """
    defaults = {"target-file-size-bytes": TARGET_PROPERTY, "cluster-by": CLUSTER_PROPERTY}
    of_table = {name: properties[of] for name, of in defaults.items() if of in properties}
    if "strategy" in chosen:
        of_table.pop("cluster-by", None)
    for name in [name for name in of_table if name not in chosen]:
        try:
            chosen_values(RewriteOptions, {name: of_table[name]})
        except InputError as error:
            why = str(error).removeprefix(f"option {name}")
            raise InputError(f"the table's property {defaults[name]}{why}") from None
    values = chosen_values(RewriteOptions, of_table | dict(chosen))
    _refuse_two_orders(values)
    target_bytes = values.get("target_file_bytes", TARGET_FILE_BYTES)
    values.setdefault("min_file_bytes", target_bytes * 3 // 4)
    values.setdefault("max_file_bytes", target_bytes * 9 // 5)
    values.setdefault("max_failed_commits", values.get("max_commits", MAX_COMMITS))
    if engine := values.get("readable_by"):
        from deltacompact.base.engines import engine_named

        if not engine_named(engine).reads_all_deletes:
            values.setdefault("delete_file_threshold", 1)
    options = RewriteOptions(**values)
    if not options.min_file_bytes < options.target_file_bytes < options.max_file_bytes:
        raise InputError(
            f"target-file-size-bytes {options.target_file_bytes} must lie between min-file-size-bytes "
            f"{options.min_file_bytes} and max-file-size-bytes {options.max_file_bytes}"
        )
    return options


def _refuse_two_orders(values: Mapping[str, Any]) -> None:
    strategy = values.get("strategy")
    if values.get("cluster_by") and (strategy is not None or "sort_order" in values):
        other = "strategy" if strategy is not None else "sort-order"
        raise InputError(f"options cluster-by and {other}: rows have one order, give one of them")
    if "sort_order" in values and strategy is not Strategy.SORT:
        raise InputError("option sort-order: give strategy=sort as well")
