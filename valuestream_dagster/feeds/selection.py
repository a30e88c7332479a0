"""Which objects below a landing place reach a feed: globs over the relative path, nothing about contents (C24).

``*`` and ``?`` stay within one folder; ``**/`` stands for any number of folders, none included;
a final ``**`` for all below.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

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
def glob_regex(pattern: str) -> re.Pattern[str]:
    """The glob as a regular expression over the whole relative path."""
    out, index = [], 0
    while index < len(pattern):
        if pattern.startswith("**/", index) and (index == 0 or pattern[index - 1] == "/"):
            while pattern.startswith("**/", index):
                index += 3
            out.append("(?:[^/]+/)*")
        elif pattern.startswith("**", index):
            out.append(".*")
            index += 2
        elif pattern[index] == "*":
            out.append("[^/]*")
            index += 1
        elif pattern[index] == "?":
            out.append("[^/]")
            index += 1
        else:
            out.append(re.escape(pattern[index]))
            index += 1
    return re.compile("".join(out), re.DOTALL)


def selects(include: Iterable[str], exclude: Iterable[str], path: str) -> bool:
    """Whether the object at ``path`` (relative to the landing place, forward slashes) is one of the feed's."""
    if not any(glob_regex(pattern).fullmatch(path) for pattern in include):
        return False
    return not any(glob_regex(pattern).fullmatch(path) for pattern in exclude)
