"""Globs over relative paths with forward slashes: what they mean, and which texts are none. Nothing about contents (C24).

``*`` and ``?`` stay within one folder, ``**/`` stands for any number of folders (none included), any other ``**`` for anything.
Producers choose the paths, so matching must not depend on their luck: every wildcard but the last takes the first place where the
text up to the next wildcard fits, and never another (for globs the first is always good enough), so nothing multiplies.
"""

from __future__ import annotations

import re
from functools import lru_cache

_WILDCARD = {"**/": r"(?:[^/]+/)*?", "**": r".*?", "*": r"[^/]*?"}
_TOKEN = re.compile(r"(?:(?<![^/])(?:\*\*/)+)|\*\*+|\*|\?|[^*?]+")
GLOB_LIMIT = 256


def glob_fault(pattern: str) -> str | None:
    """Why the text is no usable glob, or None."""
    if not pattern or len(pattern) > GLOB_LIMIT:
        return f"a glob has 1 to {GLOB_LIMIT} characters"
    if pattern.startswith("/") or "\\" in pattern or "://" in pattern:
        return "a glob is relative to the landing place and uses forward slashes"
    if ".." in pattern.split("/"):
        return "a glob never leaves the landing place with '..'"
    return None


@lru_cache(maxsize=1024)
def glob_pattern(glob: str) -> re.Pattern[str]:
    """The glob as a regular expression over the whole path, quadratic at worst in the path's length."""
    deep: list[list[str]] = [[""]]  # runs between wildcards that cross folders; each: pieces between those that do not
    crossing: list[str] = []
    for token in _TOKEN.findall(glob):
        if token.startswith("**"):
            crossing.append(_WILDCARD["**/" if token.endswith("/") else "**"])
            deep.append([""])
        elif token == "*":
            deep[-1].append("")
        else:
            deep[-1][-1] += "[^/]" if token == "?" else re.escape(token)
    *runs, last = [_run(pieces, final=index == len(deep) - 1) for index, pieces in enumerate(deep)]
    if not crossing:
        return re.compile(last, re.DOTALL)
    head = runs[0] + "".join(f"(?>{wildcard}{run})" for wildcard, run in zip(crossing, runs[1:], strict=False))
    return re.compile(f"{head}{crossing[-1]}{last}", re.DOTALL)


def _run(pieces: list[str], *, final: bool) -> str:
    """Text pieces with ``*`` between them; where it is the glob's end, the last piece is held to the path's end."""
    star = _WILDCARD["*"]
    if not final:
        return pieces[0] + "".join(f"(?>{star}{piece})" for piece in pieces[1:])
    if len(pieces) == 1:
        return pieces[0] + r"\Z"
    middle = "".join(f"(?>{star}{piece})" for piece in pieces[1:-1])
    return f"{pieces[0]}{middle}[^/]*{pieces[-1]}" + r"\Z"
