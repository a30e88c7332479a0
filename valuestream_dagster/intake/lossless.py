"""Which texts a column type takes without loss: one regular expression per type, used wherever rows are read. No IO here.

A text is accepted when it matches its type's pattern *and* DuckDB can read it (range, existing dates). The rules:

- integers: plain digits, ``-5``. Not ``1.5 0x10 1_000 1e3 007 +5 -0``, nor with spaces: such a text is not what a number column
  of this feed holds, and DuckDB would silently make another number or another identifier of it;
- DECIMAL(p,s): at most s decimals, then zeros only (``4.1``, ``4.100``, ``.5`` and ``-0.00`` are read, ``4.005`` is not);
- FLOAT, DOUBLE: a decimal number, exponent allowed; never nan or infinite, also not by overflow. Binary floating point
  approximates by its nature; money belongs into DECIMAL;
- BOOLEAN: true false t f 1 0, in any case;
- DATE ``2026-09-01``; TIME ``09:30[:00[.123456]]``, hours 00 to 23; TIMESTAMP: a date, or date and time with a space or T between,
  and at most a ``Z`` after it; TIMESTAMP WITH TIME ZONE: the offset must be there (``Z``, ``+02``, ``+02:00``), because without one
  the instant depends on who reads. No more than six decimals of a second, unless zeros;
- UUID: 8-4-4-4-12 hexadecimal digits; VARCHAR: any text, unchanged.

The patterns use only what Python's ``re`` and RE2 (DuckDB, Arrow) understand alike, and match the whole text.
"""

from __future__ import annotations

import re

_WHOLE = "(?:0|[1-9][0-9]*)"
_DATE = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = r"(?:[01][0-9]|2[0-3]):[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6}0*)?)?"
_INTEGER = "(?:0|-?[1-9][0-9]*)"
_FLOAT = rf"-?(?:{_WHOLE}(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][-+]?[0-9]{{1,3}})?"
_DECIMAL = re.compile(r"DECIMAL\(\d+,(\d+)\)")
_FLOATS = frozenset({"FLOAT", "DOUBLE"})

_PATTERNS: dict[str, str | None] = {
    "VARCHAR": None,
    "BOOLEAN": "(?:[tT](?:[rR][uU][eE])?|[fF](?:[aA][lL][sS][eE])?|0|1)",
    "FLOAT": _FLOAT,
    "DOUBLE": _FLOAT,
    "DATE": _DATE,
    "TIME": _TIME,
    "TIMESTAMP": f"{_DATE}(?:[T ]{_TIME}Z?)?",
    "TIMESTAMP WITH TIME ZONE": f"{_DATE}[T ]{_TIME}(?:Z|[-+][0-9]{{2}}(?::?[0-9]{{2}})?)",
    "UUID": "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
    **dict.fromkeys(
        ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"), _INTEGER
    ),
}


def plain_pattern(canonical: str) -> str | None:
    """The regular expression that a text of this canonical type must match as a whole; ``None`` where any text will do.

    Raises:
        KeyError: the type is no canonical column type (``feeds.column_types``).
    """
    decimal = _DECIMAL.fullmatch(canonical)
    if decimal is None:
        return _PATTERNS[canonical]
    scale = int(decimal[1])
    fraction = f"[0-9]{{1,{scale}}}0*" if scale else "0+"
    return rf"-?(?:{_WHOLE}(?:\.{fraction})?|\.{fraction})"


def is_floating(canonical: str) -> bool:
    """Whether values of this type can overflow to infinity, so that a reader must look."""
    return canonical in _FLOATS
