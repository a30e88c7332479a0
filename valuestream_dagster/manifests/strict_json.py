"""JSON that means one thing: strict loading, and values read without loss. Nothing about manifests.

No NaN, no member twice, no number of absurd length, no nesting without end; whatever the bytes are, ``load`` answers or raises
``NotJson`` with the rest of a sentence.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from decimal import Decimal
from typing import NoReturn

INTEGER_LIMIT = 2**63 - 1
BOM = b"\xef\xbb\xbf"
_DECIMAL = re.compile(r"[+-]?\d{1,38}(\.\d{1,38})?")


class NotJson(ValueError):
    """The text is no JSON object that means one thing."""


def load(data: bytes) -> dict[str, object]:
    """The bytes as one JSON object without duplicate members; raises NotJson with the rest of a sentence."""
    try:
        text = data.removeprefix(BOM).decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotJson(f"is not UTF-8 (byte {error.start}); write it as UTF-8") from None
    try:
        raw = json.loads(text, parse_float=Decimal, parse_constant=_no_constant, object_pairs_hook=_no_twins)
    except NotJson:
        raise
    except json.JSONDecodeError as error:
        raise NotJson(f"is not JSON: {error.msg} at line {error.lineno} column {error.colno}") from None
    except RecursionError:
        raise NotJson("is nested too deep") from None
    except (ValueError, ArithmeticError):
        raise NotJson("holds a number of absurd length") from None
    if not isinstance(raw, dict):
        raise NotJson("is not a JSON object")
    return raw


def _no_constant(name: str) -> NoReturn:
    raise NotJson(f"holds {name}, which is no JSON number")


def _no_twins(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    twin = next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
    raise NotJson(f"holds the member {shown(twin)} twice in one object")


def shown(value: object) -> str:
    """Any JSON value as short text for messages."""
    text = json.dumps(value, ensure_ascii=True, default=str)
    return text if len(text) <= 80 else text[:77] + "..."


def whole(value: object, least: int) -> int | None:
    """The value as an integer from ``least`` up to 64 bits; None for anything else, booleans among them."""
    is_whole = isinstance(value, int) and not isinstance(value, bool) and least <= value <= INTEGER_LIMIT
    return value if is_whole and isinstance(value, int) else None


def exact_decimal(value: object) -> Decimal | None:
    """An exact total: decimal text, or a JSON number without loss; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, Decimal):
        return value if abs(value.adjusted()) <= 38 and len(value.as_tuple().digits) <= 76 else None
    if isinstance(value, int):
        return Decimal(value) if abs(value) < 10**38 else None
    return Decimal(value) if isinstance(value, str) and value.isascii() and _DECIMAL.fullmatch(value) else None
