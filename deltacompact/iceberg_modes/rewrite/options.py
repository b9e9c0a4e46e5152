"""The options of a rewrite, under the names and with the defaults of Iceberg's own `rewrite_data_files`.

    {"target-file-size-bytes": "134217728", "delete-file-threshold": "1"}  ->  RewriteOptions(…)

Values are text, as on the command line. An unknown name, or a value that does not fit, is refused before any work.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deltacompact.base import expect
from deltacompact.base.errors import InputError
from deltacompact.base.wording import unknown_option

GB = 1 << 30
TARGET_FILE_BYTES = 512 << 20
MAX_COMMITS = 10


class JobOrder(enum.StrEnum):
    """In which order groups are rewritten and committed."""

    NONE = "none"
    BYTES_ASC = "bytes-asc"
    BYTES_DESC = "bytes-desc"
    FILES_ASC = "files-asc"
    FILES_DESC = "files-desc"


@dataclass(frozen=True, slots=True)
class RewriteOptions:
    """What is rewritten, and how it is committed. Bytes are sizes of stored files.

    target_file_bytes               about the size of the files that are written
    min_file_bytes                  files below are rewritten (default: 75 % of the target)
    max_file_bytes                  files above are rewritten (default: 180 % of the target)
    min_input_files                 a group of right-sized files is rewritten if it has at least so many files
    max_group_bytes                 most bytes of a group
    max_group_files                 most files of a group (None: any number)
    max_files                       most files of a run (None: any number)
    delete_file_threshold           a file to which so many delete files apply is rewritten (None: none is for that)
    delete_ratio_threshold          so is a file of which this share of rows is deleted by position
    rewrite_all                     every file is rewritten
    partial_progress                commit after some groups, not once
    max_commits                     in about so many commits
    max_failed_commits              so many of them may fail (default: max_commits)
    max_concurrent_groups           so many groups are rewritten at the same time (None: as many as there are slots)
    remove_dangling_deletes         afterwards, remove deletes that apply to nothing in all partitions
    output_spec_id                  the partition spec of what is written (None: each file keeps its own)
    where                           only files that may have rows for which this is true
    use_starting_sequence_number    outputs keep the planned snapshot's number, so that later equality deletes apply
    job_order                       see JobOrder
    merge_uncompared                files of an upserted table are rewritten, too, that no upsert has compared
    """

    target_file_bytes: int = TARGET_FILE_BYTES
    min_file_bytes: int = TARGET_FILE_BYTES * 3 // 4
    max_file_bytes: int = TARGET_FILE_BYTES * 9 // 5
    min_input_files: int = 5
    max_group_bytes: int = 100 * GB
    max_group_files: int | None = None
    max_files: int | None = None
    delete_file_threshold: int | None = None
    delete_ratio_threshold: float = 0.3
    rewrite_all: bool = False
    partial_progress: bool = False
    max_commits: int = MAX_COMMITS
    max_failed_commits: int = MAX_COMMITS
    max_concurrent_groups: int | None = None
    remove_dangling_deletes: bool = False
    output_spec_id: int | None = None
    where: str | None = None
    use_starting_sequence_number: bool = True
    job_order: JobOrder = JobOrder.NONE
    merge_uncompared: bool = False

    @property
    def written_file_bytes_max(self) -> int:
        """The size that a written file may reach: halfway between target and maximum, as Iceberg has it."""
        return self.target_file_bytes + (self.max_file_bytes - self.target_file_bytes) // 2


_FIELDS = {
    "target-file-size-bytes": "target_file_bytes",
    "min-file-size-bytes": "min_file_bytes",
    "max-file-size-bytes": "max_file_bytes",
    "min-input-files": "min_input_files",
    "max-file-group-size-bytes": "max_group_bytes",
    "max-file-group-input-files": "max_group_files",
    "max-files-to-rewrite": "max_files",
    "delete-file-threshold": "delete_file_threshold",
    "delete-ratio-threshold": "delete_ratio_threshold",
    "rewrite-all": "rewrite_all",
    "partial-progress.enabled": "partial_progress",
    "partial-progress.max-commits": "max_commits",
    "partial-progress.max-failed-commits": "max_failed_commits",
    "max-concurrent-file-group-rewrites": "max_concurrent_groups",
    "remove-dangling-deletes": "remove_dangling_deletes",
    "output-spec-id": "output_spec_id",
    "where": "where",
    "use-starting-sequence-number": "use_starting_sequence_number",
    "rewrite-job-order": "job_order",
    "merge-uncompared": "merge_uncompared",
}
_SWITCHES = (
    "rewrite-all",
    "partial-progress.enabled",
    "remove-dangling-deletes",
    "use-starting-sequence-number",
    "merge-uncompared",
)
_MAY_BE_ZERO = ("min-file-size-bytes", "output-spec-id", "partial-progress.max-failed-commits")


def rewrite_options(chosen: Mapping[str, Any], properties: Mapping[str, str]) -> RewriteOptions:
    """The options by their Iceberg names. The table's `write.target-file-size-bytes` is the default of the target.

    Raises InputError naming the option.
    """
    values: dict[str, Any] = {}
    for name, value in chosen.items():
        if name not in _FIELDS:
            raise InputError(unknown_option(name, _FIELDS))
        values[_FIELDS[name]] = _value(name, value)
    if "target_file_bytes" not in values and (target := properties.get("write.target-file-size-bytes")) is not None:
        values["target_file_bytes"] = _value("target-file-size-bytes", target)
    target_bytes = values.get("target_file_bytes", TARGET_FILE_BYTES)
    values.setdefault("min_file_bytes", target_bytes * 3 // 4)
    values.setdefault("max_file_bytes", target_bytes * 9 // 5)
    values.setdefault("max_failed_commits", values.get("max_commits", MAX_COMMITS))
    options = RewriteOptions(**values)
    if not options.min_file_bytes < options.target_file_bytes < options.max_file_bytes:
        raise InputError(
            f"target-file-size-bytes {options.target_file_bytes} must lie between min-file-size-bytes "
            f"{options.min_file_bytes} and max-file-size-bytes {options.max_file_bytes}"
        )
    return options


def _value(name: str, value: Any) -> Any:
    text = str(value).strip().lower()
    if name == "where":
        return expect.text("option where", value)
    if name == "rewrite-job-order":
        try:
            return JobOrder(text)
        except ValueError:
            raise InputError(f"option {name}: {value!r} is none of {', '.join(JobOrder)}") from None
    if name in _SWITCHES:
        if text not in ("true", "false"):
            raise InputError(f"option {name}: {value!r} is neither true nor false")
        return text == "true"
    if name == "delete-ratio-threshold":
        try:
            ratio = float(text)
        except ValueError:
            ratio = -1.0
        if not 0.0 < ratio <= 1.0:
            raise InputError(f"option {name}: {value!r} is not a share above 0, up to 1")
        return ratio
    least = 0 if name in _MAY_BE_ZERO else 1
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise InputError(f"option {name}: {value!r} is not a whole number of at least {least}")
    return int(text)
