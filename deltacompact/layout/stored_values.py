"""Numbers, texts and bytes as JSON values, without loss.

20456 -> 20456      1.5 -> {"float": "0x1.8p+0"}      1.10 -> {"decimal": "1.10"}      b"ada" -> "ada"
b"\\xff" -> {"hex": "ff"}
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any


def stored_value(value: Any) -> Any:
    """A number, text or bytes as a JSON value."""
    match value:
        case bytes():
            return _text_or_hex(value)
        case float():
            return {"float": value.hex()}
        case Decimal():
            return {"decimal": str(value)}
    return value


def _text_or_hex(value: bytes) -> Any:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"hex": value.hex()}


def value_of(stored: Any) -> Any:
    """The value that `stored_value` wrote. Text comes back as bytes."""
    read: dict[str, Callable[[str], Any]] = {"hex": bytes.fromhex, "float": float.fromhex, "decimal": Decimal}
    if isinstance(stored, dict):
        ((kind, text),) = stored.items()
        return read[kind](text)
    return stored.encode() if isinstance(stored, str) else stored
