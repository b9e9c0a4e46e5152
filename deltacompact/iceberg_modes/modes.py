"""All modes, and the options of each. Importing this does not import PyIceberg."""

from __future__ import annotations

from deltacompact.base.modes import CONVERT, REWRITE, UPSERT
from deltacompact.iceberg_modes.convert.options import ConvertOptions
from deltacompact.iceberg_modes.maintain.options import MaintainOptions
from deltacompact.iceberg_modes.rewrite.options import RewriteOptions
from deltacompact.iceberg_modes.upsert.options import UpsertOptions

MAINTAIN = "maintain"
OPTIONS = {REWRITE: RewriteOptions, CONVERT: ConvertOptions, UPSERT: UpsertOptions, MAINTAIN: MaintainOptions}
"""The dataclasses that declare them."""
