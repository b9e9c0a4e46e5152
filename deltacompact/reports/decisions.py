"""The decision about each file, as JSON values and in words: before a compaction and after it.

plan       orders/data/5c….csv      2 rows  upsert at 1795308150709: rewrite (small, merged)
           orders/data/7a….parquet  4,000,000 rows  compacted: keep (no row died); if rows die: rewrite (rows died)
           for many files: 312 compacted files, 1,200,000,000 rows: keep (no row died); if rows die: rewrite (rows died)
           after it, see planning/decisions.py
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from deltacompact.base.wording import counted
from deltacompact.planning.decisions import DecidedFile, FileAction, FileDecision, FileReason, forecast
from deltacompact.planning.plan import CompactionPlan, SourceFile

FILES_SHOWN_MAX = 40
"""Plans with more files print one line for all files with the same decision, unless each is asked for."""


def forecast_documents(plan: CompactionPlan) -> list[dict[str, Any]]:
    """Every file of a plan with its expected decision. `if_rows_die` is null where dead rows change nothing."""
    return [
        {
            **_source_document(source),
            **_decision_document(expected.unhurt),
            "if_rows_die": _decision_document(expected.hurt) if expected.hurt else None,
        }
        for source, expected in zip(plan.sources, forecast(plan), strict=True)
    ]


def expected_sizes(files: Sequence[dict[str, Any]], target_file_bytes: int) -> dict[str, int]:
    """How many files and bytes there are before, and about afterwards if no row dies: deletes go, others are merged."""
    stay = [file for file in files if file["action"] in (FileAction.KEEP.value, FileAction.MARK.value)]
    merged = sum(file["bytes"] for file in files if file["action"] == FileAction.REWRITE.value)
    return {
        "files_before": len(files),
        "files_after": len(stay) + math.ceil(merged / target_file_bytes),
        "bytes_before": sum(file["bytes"] for file in files),
        "bytes_after": sum(file["bytes"] for file in stay) + merged,
    }


def forecast_lines(files: Sequence[dict[str, Any]], each: bool) -> Iterator[str]:
    """A line for each file, or a line for all files with the same decision."""
    if each:
        for file in files:
            position = "" if file["position"] is None else f" at {file['position']}"
            yield f"{file['path']}  {counted(file['rows'], 'row')}  {file['kind']}{position}: {_expected(file)}"
        return
    numbers, rows = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for file in files:
        alike = file["kind"], _expected(file)
        numbers[alike] += 1
        rows[alike] += file["rows"]
    for (kind, expected), number in numbers.items():
        yield f"{counted(number, f'{kind} file')}, {counted(rows[kind, expected], 'row')}: {expected}"


def decided_documents(files: Iterable[DecidedFile]) -> list[dict[str, Any]]:
    """The decision about every file of a session."""
    return [{"path": file.path, "action": file.action.value, "reason": file.reason.value} for file in files]


def _source_document(source: SourceFile) -> dict[str, Any]:
    return {
        "path": source.file.path,
        "rows": source.file.rows,
        "bytes": source.file.bytes,
        "kind": "compacted" if source.in_base else source.operation.value,
        "position": None if source.in_base else source.position,
    }


def _decision_document(decision: FileDecision) -> dict[str, str]:
    return {"action": decision.action.value, "reason": decision.reason.value}


def _expected(file: dict[str, Any]) -> str:
    hurt = file["if_rows_die"]
    return _words(file) + (f"; if rows die: {_words(hurt)}" if hurt else "")


def _words(decision: dict[str, str]) -> str:
    return f"{decision['action']} ({FileReason(decision['reason']).words})"
