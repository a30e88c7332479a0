"""The types that columns may have: DuckDB's scalar types, under one canonical name each.

Types that a published Parquet file would not give back unchanged are refused (DuckDB stores HUGEINT as DOUBLE there).
"""

from __future__ import annotations

import re
from difflib import get_close_matches

_CANONICAL = {
    "BOOLEAN": "BOOLEAN BOOL LOGICAL",
    "TINYINT": "TINYINT INT1",
    "SMALLINT": "SMALLINT INT2 SHORT",
    "INTEGER": "INTEGER INT INT4 SIGNED",
    "BIGINT": "BIGINT INT8 LONG",
    "UTINYINT": "UTINYINT",
    "USMALLINT": "USMALLINT",
    "UINTEGER": "UINTEGER",
    "UBIGINT": "UBIGINT",
    "FLOAT": "FLOAT REAL FLOAT4",
    "DOUBLE": "DOUBLE FLOAT8",
    "VARCHAR": "VARCHAR TEXT STRING CHAR BPCHAR",
    "DATE": "DATE",
    "TIME": "TIME",
    "TIMESTAMP": "TIMESTAMP DATETIME",
    "TIMESTAMP WITH TIME ZONE": "TIMESTAMPTZ",
    "UUID": "UUID",
}
_NAMES = {alias: name for name, aliases in _CANONICAL.items() for alias in aliases.split()}
_NAMES |= {
    "TIMESTAMP WITH TIME ZONE": "TIMESTAMP WITH TIME ZONE",
    "TIMESTAMP WITHOUT TIME ZONE": "TIMESTAMP",
    "DOUBLE PRECISION": "DOUBLE",
}
_BITS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64}
_INTEGERS = frozenset(_BITS) | frozenset(f"U{name}" for name in _BITS)
_DOUBLE_BITS = 53
_DECIMAL = re.compile(r"(?:DECIMAL|NUMERIC|DEC)(?: ?\( ?(\d{1,3}) ?(?:, ?(\d{1,3}) ?)?\))?")
_NOT_BUILT = frozenset(
    (
        "BLOB",
        "BYTEA",
        "INTERVAL",
        "JSON",
        "BIT",
        "TIMETZ",
        "TIMESTAMP_S",
        "TIMESTAMP_MS",
        "TIMESTAMP_NS",
        "STRUCT",
        "MAP",
    )
)
_HUGE = frozenset({"HUGEINT", "INT128", "UHUGEINT"})


def canonical_type(text: str) -> str:
    """The one name of a column type.

    Raises:
        ValueError: the text is no type that a column may have; the message says what to write.
    """
    name = " ".join(text.upper().split())
    if name in _NAMES:
        return _NAMES[name]
    decimal = _DECIMAL.fullmatch(name)
    if decimal is not None:
        return _decimal(text, decimal)
    if name in _HUGE:
        raise ValueError(f"`{text}` would be published as DOUBLE and lose digits; write DECIMAL(38,0)")
    if name in _NOT_BUILT:
        raise ValueError(f"the type `{text}` is not built in this version; write VARCHAR and cast it in queries")
    if text.count("(") != text.count(")"):
        raise ValueError(f'`{text}` has an open bracket; inside {{...}} write such a type in quotes: "DECIMAL(18,2)"')
    near = get_close_matches(name.split("(")[0], [*_NAMES, "DECIMAL"], 1, 0.6)
    hint = f"did you mean {'DECIMAL(18,2)' if near == ['DECIMAL'] else near[0]}?" if near else "write e.g. VARCHAR"
    raise ValueError(f"`{text}` is no column type; {hint}")


def _decimal(text: str, found: re.Match[str]) -> str:
    precision = int(found[1]) if found[1] else 18
    scale = int(found[2]) if found[2] else (0 if found[1] else 3)
    if not 1 <= precision <= 38:
        raise ValueError(f"`{text}` has no precision from 1 to 38; write e.g. DECIMAL(18,2)")
    if scale > precision:
        raise ValueError(f"`{text}` has more decimals than digits; write e.g. DECIMAL({precision},{min(2, precision)})")
    return f"DECIMAL({precision},{scale})"


def adds_up_exactly(canonical: str) -> bool:
    """Whether an exact total can be computed over a column of this (canonical) type."""
    return canonical in _INTEGERS or canonical.startswith("DECIMAL(")


def holds_every(old: str, new: str) -> bool:
    """Whether a column of the (canonical) type ``new`` can show every value of a column of type ``old`` unchanged."""
    if new in {old, "VARCHAR"}:
        return True
    if old in _INTEGERS:
        return _holds_integers(old, new)
    if old.startswith("DECIMAL(") and new.startswith("DECIMAL("):
        (old_digits, old_scale), (digits, scale) = _digits(old), _digits(new)
        return scale >= old_scale and digits - scale >= old_digits - old_scale
    return (old, new) in {("FLOAT", "DOUBLE"), ("DATE", "TIMESTAMP")}


def _holds_integers(old: str, new: str) -> bool:
    signed = not old.startswith("U")
    bits = _BITS[old.removeprefix("U")]
    if new in _INTEGERS:
        room = _BITS[new.removeprefix("U")]
        return room >= bits if signed == (not new.startswith("U")) else (not signed and room > bits)
    if new.startswith("DECIMAL("):
        digits, scale = _digits(new)
        return digits - scale >= len(str(2**bits))
    return new == "DOUBLE" and bits <= _DOUBLE_BITS


def _digits(decimal: str) -> tuple[int, int]:
    precision, scale = decimal.removeprefix("DECIMAL(").removesuffix(")").split(",")
    return int(precision), int(scale)
