"""The producer's statement as a value: manifest, entries, checksums, the digest of a delivery, and which paths are safe.

Parsers for each format live in ``manifests/``; whether the bytes agree is found out in ``intake/``.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from valuestream_dagster.core.finding import Finding
from valuestream_dagster.core.rows import DeclaredControls
from valuestream_dagster.core.sequence import SequenceKey

NAME_LIMIT_BYTES = 1024
_HEX_LENGTH = {"md5": 32, "sha1": 40, "sha256": 64, "sha512": 128}


class Kind(StrEnum):
    """What a delivery holds: all of its period or dataset, or the changes since its predecessor."""

    FULL = "full"
    DELTA = "delta"


@dataclass(frozen=True, slots=True)
class Checksum:
    """A declared digest of one file: ``algorithm`` (md5, sha1, sha256, sha512) and lower-case hex."""

    algorithm: str
    hex: str

    @classmethod
    def parse(cls, algorithm: str, value: str) -> Checksum | None:
        """The checksum, or None where the value cannot be one of that algorithm (wrong length, not hex)."""
        name, text = algorithm.lower().replace("-", ""), value.strip().lower()
        length = _HEX_LENGTH.get(name)
        return cls(name, text) if length and re.fullmatch(rf"[0-9a-f]{{{length}}}", text) else None


@dataclass(frozen=True, slots=True)
class Entry:
    """One file that the manifest says completes the delivery; ``None`` where it does not say (M1)."""

    path: str
    bytes: int | None = None
    checksum: Checksum | None = None
    rows: int | None = None
    version_id: str | None = None
    role: str = "data"


@dataclass(frozen=True, slots=True)
class Predecessor:
    """The delivery that the producer says this one follows."""

    key: str
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """One handover as its producer states it (M1); ``extra`` holds unknown fields, kept and never obeyed."""

    source: str
    dataset: str
    kind: Kind
    key: SequenceKey
    revision: int
    entries: tuple[Entry, ...]
    controls: DeclaredControls = DeclaredControls()
    period: str | None = None
    predecessor: Predecessor | None = None
    empty: bool = False
    finality: str | None = None
    created_at: str | None = None
    warnings: tuple[str, ...] = ()
    extra: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def name(self) -> str:
        """How messages name the delivery: ``acme/orders 2026-09-02 r1`` (the kind is added where it is a delta)."""
        kind = "" if self.kind is Kind.FULL else f" {self.kind}"
        return f"{self.source}/{self.dataset} {self.key}{kind} r{self.revision}"


@dataclass(frozen=True, slots=True)
class UnusableManifest:
    """A manifest that states no delivery: the faults, and the identity as far as it could be read."""

    findings: tuple[Finding, ...]
    key: SequenceKey | None = None
    kind: Kind | None = None
    revision: int | None = None


@dataclass(frozen=True, slots=True)
class Digest:
    """The digest of a delivery: 64 lower-case hex digits."""

    hex: str

    def __str__(self) -> str:
        return self.hex

    @property
    def short(self) -> str:
        """The first twelve digits, for people and data versions."""
        return self.hex[:12]


@dataclass(frozen=True, slots=True)
class SealedFile:
    """One payload file taken into our own store: its role, real sha256 and size, and where it came from (C17)."""

    role: str
    path: str
    sha256: str
    bytes: int
    uri: str
    version: str = ""
    rows: int | None = None


def digest_of(files: Iterable[SealedFile]) -> Digest:
    """sha256 over the sorted lines ``<role> <sha256> <bytes>``; names, order and times do not enter (M11)."""
    lines = sorted(f"{file.role} {file.sha256} {file.bytes}\n".encode() for file in files)
    return Digest(hashlib.sha256(b"".join(lines)).hexdigest())


def path_fault(path: str) -> str | None:
    """Why a declared path is not safe to follow, or None. Pure: symlinks are the store's to refuse.

    Absolute, drive, URL, ``..`` and control characters are refused, whichever separator they use (ruling 14).
    """
    if not path or path.strip() != path:
        return "it is empty or begins or ends with white space"
    if len(path.encode("utf-8", "surrogatepass")) > NAME_LIMIT_BYTES:
        return f"it is longer than {NAME_LIMIT_BYTES} bytes"
    if any(unicodedata.category(character) in {"Cc", "Cs"} for character in path):
        return "it holds a control character"
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", path):
        return "it is a URL or names a drive"
    if path.startswith(("/", "\\", "~")):
        return "it is absolute"
    if ".." in re.split(r"[/\\]", path):
        return "it leaves the delivery's folder with '..'"
    if "\\" in path:
        return "it uses backslashes; write forward slashes"
    return None


def normal_path(path: str) -> str:
    """The path with ``.`` and empty segments dropped, so that two spellings of one file are seen as one."""
    return "/".join(segment for segment in path.split("/") if segment not in ("", "."))
