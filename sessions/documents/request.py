"""An instruction document as a request to the engine: the planner reads the request, the runner runs it.

document   orders, desired_sla 900, settings {"rows_per_round": 10}     all partitions
planner    Request("orders", partitions=None, options=…)
runner     Request("orders", partitions=[{"day": "2024-01-01"}], attempt="run-1/3/1", options=…)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deltacompact.arguments import clustering, content_type
from deltacompact.base.settings import Options, Settings
from deltacompact.job import Request
from sessions.documents.instruction import Instruction


def request_of_document(
    instruction: Instruction,
    settings: Settings,
    partitions: Sequence[dict[str, str | None]] | None,
    hash_bucket_count: int | None,
    attempt: str | None = None,
) -> Request:
    """The engine's request. The caller passes the planner's decisions, and what differs between sessions."""
    options: dict[str, Any] = {
        "rows_per_primary_key_index_file": instruction.rows_per_primary_key_index_file,
        "rows_per_compacted_file": instruction.rows_per_compacted_file,
        "hash_bucket_count": hash_bucket_count,
        "content_type": content_type(instruction.compacted_file_content_type),
        "purge": instruction.purge,
        "cluster_by": clustering(instruction.cluster_by),
    }
    return Request(
        instruction.source_table_id,
        instruction.primary_keys,
        instruction.sort_keys,
        instruction.destination_compacted_table_id,
        partitions,
        Options.of(settings, **options),
        attempt,
    )
