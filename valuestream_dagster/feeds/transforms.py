"""A feed's transform as it is declared: SQL in a file of the deployment, or a Python function; with the text that decides."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from valuestream_dagster.core.rows import Transform

SQL_LIMIT_BYTES = 1024 * 1024
_FUNCTION = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_BEGINS = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*(SELECT|WITH|FROM|VALUES)\b", re.IGNORECASE | re.DOTALL)


class TransformUnusable(ValueError):
    """What a feed declares as its transform cannot be one; with what to write instead."""

    def __init__(self, message: str, instead: str) -> None:
        super().__init__(message)
        self.message = message
        self.instead = instead


def load_transform(declared: str, deployment: Path) -> Transform:
    """The transform that a feed file names.

    Args:
        declared: path of a SQL file, relative to the deployment's folder, or ``package.module:function``.
        deployment: the deployment's folder.

    Raises:
        TransformUnusable: there is no such file or module, or the file holds no question.
    """
    return _function(declared) if _FUNCTION.fullmatch(declared) else _sql(declared, deployment)


def _sql(declared: str, deployment: Path) -> Transform:
    root = deployment.resolve()
    path = (root / declared).resolve()
    if not declared.endswith(".sql") or not path.is_relative_to(root):
        raise TransformUnusable(
            f"`{declared}` is neither a SQL file of the deployment nor a function", "transforms/NAME.sql or package.module:function"
        )
    try:
        if path.stat().st_size > SQL_LIMIT_BYTES:
            raise TransformUnusable(f"{declared} is over {SQL_LIMIT_BYTES} bytes", "a shorter one")
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise TransformUnusable(f"{declared} cannot be read: {error}", "the path of a SQL file in UTF-8") from error
    if _BEGINS.match(text) is None:
        raise TransformUnusable(f"{declared} does not begin with SELECT", "SELECT ... FROM delivery")
    return Transform(declared, text.strip().rstrip(";"), is_sql=True)


def _function(declared: str) -> Transform:
    """The source of the function's module is what decides; it is found and read here, and not run."""
    module = declared.partition(":")[0]
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError) as error:
        raise TransformUnusable(f"the module {module} cannot be found: {error}", "a module that can be imported here") from error
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        raise TransformUnusable(f"the module {module} cannot be found", "a module that can be imported here (see PYTHONPATH)")
    return Transform(declared, Path(spec.origin).read_text("utf-8"), is_sql=False)
