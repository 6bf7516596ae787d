"""Text from files and paths, made harmless for people and their terminals, and JSON from files."""

from __future__ import annotations

import json
import unicodedata
from typing import Any


def printable(text: str, kept: str = "") -> str:
    """The text with escapes for control characters except `kept`, and for characters that reorder or hide text."""
    return "".join(
        c if c in kept or unicodedata.category(c) not in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"} else ascii(c)[1:-1]
        for c in text
    )


def parse_json(text: str | bytes) -> Any:
    """What a text says that may come from anywhere. Raises ValueError, also if it nests deeper than Python can read."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it nests too deeply") from None
