"""What is wrong with a delivery: one finding per fault, in people's words and as fields. No verdicts here."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault (or warning) of one delivery.

    Args:
        code: closed word, e.g. ``checksum_mismatch``; stable, for programs.
        detail: one sentence that names the culprit.
        next_step: what to do now and who does it.
        file: path as the manifest declares it, when one file is the culprit.
        line: line of the file, from 1, when known.
        column: column name, when one is the culprit.
        expected: what was declared, as text.
        found: what is there, as text.
    """

    code: str
    detail: str
    next_step: str = ""
    file: str | None = None
    line: int | None = None
    column: str | None = None
    expected: str | None = None
    found: str | None = None

    def as_dict(self) -> dict[str, str | int | None]:
        """The finding as JSON-ready fields, empty ones left out."""
        return {name: value for name, value in asdict(self).items() if value not in (None, "")}

    def __str__(self) -> str:
        where = ", ".join(
            part
            for part in (
                self.file or "",
                f"line {self.line}" if self.line is not None else "",
                f"column {self.column}" if self.column else "",
            )
            if part
        )
        head = f"{where}: {self.detail}" if where else self.detail
        return f"{head} [{self.code}]"
