"""Which listed objects a manifest's entries are, and whether all are there. Looks at names and sizes only, never at bytes.

Complete is not valid: here every entry is found, unambiguous, no link, of its declared size; ``seal`` compares the bytes.
Only a file that is *not there*, or is short and still fresh, makes a delivery wait; everything else that differs is wrong (M3, M5).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from valuestream_dagster.core.continuity import SliceState
from valuestream_dagster.core.decision import Incomplete, Invalid
from valuestream_dagster.core.finding import Finding
from valuestream_dagster.core.manifest import Digest, Entry, Manifest, SealedFile, normal_path
from valuestream_dagster.intake.records import SealRecord
from valuestream_dagster.stores.base import ObjectStat


@dataclass(frozen=True, slots=True)
class Resolved:
    """Every entry with the object that it is; ``extra`` are other files in a folder that is this delivery's alone."""

    entries: tuple[tuple[Entry, ObjectStat], ...]
    warnings: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    source: str = ""


@dataclass(frozen=True, slots=True)
class InStore:
    """The delivery was sealed and found valid before, and is taken up from our own store (ruling: sealed once, read there).

    Args:
        digest: of the delivery.
        manifest_sha256: of its manifest, which is kept too.
        record: where its bytes are; None until somebody needs to know.
        redo: what is published of it is made again (L6, ruling 12).
        lineage: its files by its publication, where there may be no record of them.
        stopped: it waits for a person: in conflict or held.
    """

    digest: Digest
    manifest_sha256: str
    record: SealRecord | None = None
    redo: bool = False
    lineage: tuple[SealedFile, ...] | None = None
    stopped: SliceState | None = None


class Listing(dict[str, ObjectStat]):
    """One listing by path, which finds names that are alike but for case or Unicode form without searching twice.

    Args:
        stats: what the landing place listed.
        manifests: paths of the selected manifests among them; needed to tell which files are extra.
    """

    def __init__(self, stats: Iterable[ObjectStat], manifests: Collection[str] = ()) -> None:
        super().__init__((stat.path, stat) for stat in stats)
        self.manifests = frozenset(manifests)
        self._alike: dict[str, list[str]] | None = None
        self._below: dict[str, int] | None = None

    def alike(self, path: str) -> list[str]:
        """Paths that differ from ``path`` at most in case or Unicode form."""
        if self._alike is None:
            self._alike = {}
            for listed in self:
                self._alike.setdefault(_folded(listed), []).append(listed)
        return self._alike.get(_folded(path), [])

    def extra(self, folder: str, named: Collection[str]) -> tuple[str, ...]:
        """Files below ``folder`` that are not named, where exactly one manifest lies in it; else nothing can be said."""
        if self._below is None:
            self._below = {}
            for manifest in self.manifests:
                for above in _folders_above(manifest):
                    self._below[above] = self._below.get(above, 0) + 1
        if self._below.get(folder) != 1:
            return ()
        return tuple(path for path in self if path.startswith(folder) and path not in named)


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", path).casefold()


def _folders_above(path: str) -> list[str]:
    """``""`` and every folder that holds the path, each with its final slash."""
    return ["", *(path[: index + 1] for index, character in enumerate(path) if character == "/")]


def resolve(
    manifest: Manifest,
    manifest_stat: ObjectStat,
    listing_by_path: Mapping[str, ObjectStat],
    *,
    now: datetime,
    settle_seconds: float,
) -> Resolved | Incomplete | Invalid:
    """The objects that complete a delivery, or what is missing, or what is wrong; all of it at once.

    Args:
        manifest: what the producer states.
        manifest_stat: where the manifest lies; entry paths are relative to its folder.
        listing_by_path: one listing of the landing place; a ``Listing`` where many manifests are asked about it.
        now: the clock's reading.
        settle_seconds: a short file that changed less than this ago is taken to be arriving still.
    """
    listing = listing_by_path if isinstance(listing_by_path, Listing) else Listing(listing_by_path.values())
    folder = manifest_stat.path[: manifest_stat.path.rfind("/") + 1]
    look = _Look(manifest, listing, now, timedelta(seconds=settle_seconds))
    pairs = [(entry, look.find(folder + normal_path(entry.path), entry)) for entry in manifest.entries]
    if look.findings:
        return Invalid(tuple(look.findings))
    if look.missing:
        return Incomplete(tuple(look.missing))
    found = tuple((entry, stat) for entry, stat in pairs if stat is not None)
    named = {manifest_stat.path, *(stat.path for _, stat in found)}
    return Resolved(found, tuple(look.warnings), listing.extra(folder, named), manifest.source)


class _Look:
    """One delivery being looked for: what is missing, wrong or odd so far."""

    def __init__(self, manifest: Manifest, listing: Listing, now: datetime, settle: timedelta) -> None:
        self.missing: list[str] = []
        self.findings: list[Finding] = []
        self.warnings: list[str] = []
        self._resend = f"ask {manifest.source} for a resend."
        self._listing = listing
        self._now = now
        self._settle = settle

    def find(self, path: str, entry: Entry) -> ObjectStat | None:
        """The object that an entry is; None after noting why there is none."""
        link = next((above for above in _folders_above(path)[1:] if self._is_link(above[:-1])), None)
        if link is not None:
            self._refuse("symlink_refused", f"the path lies behind the symbolic link {link[:-1]}", entry)
            return None
        twins = self._twins(path)
        if len(twins) > 1:
            detail = f"{len(twins)} files have this name, told apart only by their Unicode form"
            self._refuse("name_ambiguous", detail, entry)
            return None
        if not twins:
            self.missing.append(self._missing_name(path, entry))
            return None
        stat = self._listing[twins[0]]
        if stat.path != path:
            self.warnings.append(f"{entry.path} is there under another Unicode form of its name")
        return stat if self._agrees(stat, entry) else None

    def _is_link(self, path: str) -> bool:
        stat = self._listing.get(path)
        return stat is not None and stat.is_link

    def _twins(self, path: str) -> list[str]:
        """The listed names equal to ``path`` but for Unicode form; a plain name that is there has no other (case 30)."""
        if path.isascii():
            return [path] if path in self._listing else []
        form = unicodedata.normalize("NFC", path)
        return [other for other in self._listing.alike(path) if unicodedata.normalize("NFC", other) == form]

    def _missing_name(self, path: str, entry: Entry) -> str:
        alike = [other for other in self._listing.alike(path) if other != path]
        return f"{entry.path} (there is {alike[0].rpartition('/')[2]})" if alike else entry.path

    def _agrees(self, stat: ObjectStat, entry: Entry) -> bool:
        """Whether the listing contradicts the entry; notes how."""
        if stat.is_link:
            self._refuse("symlink_refused", "the file is a symbolic link", entry)
        elif stat.is_special:
            self._refuse("special_file_refused", "this is a socket, pipe or device, not a file", entry)
        elif entry.version_id is not None and stat.version and stat.version != entry.version_id:
            self.findings.append(version_mismatch(entry, stat.version, self._resend))
        elif entry.bytes is None or entry.bytes == stat.bytes:
            return True
        elif stat.bytes < entry.bytes and self._is_arriving(stat):
            self.missing.append(f"{entry.path} ({stat.bytes} of {entry.bytes} bytes)")
        else:
            self.findings.append(size_mismatch(entry, stat.bytes, self._resend))
        return False

    def _is_arriving(self, stat: ObjectStat) -> bool:
        changed = stat.modified_at
        return not stat.stable and changed is not None and self._now - changed < self._settle

    def _refuse(self, code: str, detail: str, entry: Entry) -> None:
        self.findings.append(Finding(code, detail, self._resend, file=entry.path))


def size_mismatch(entry: Entry, found: int, next_step: str) -> Finding:
    """The file is not as long as its manifest says."""
    expected = entry.bytes or 0
    off = f"{abs(expected - found)} bytes {'short of' if found < expected else 'longer than'} its manifest"
    return Finding(
        "size_mismatch", f"the file is {off}", next_step, file=entry.path, expected=str(expected), found=str(found)
    )


def version_mismatch(entry: Entry, found: str, next_step: str) -> Finding:
    """The object was overwritten after its manifest was written (M5)."""
    detail = "the object's version is not the one in the manifest: it was overwritten"
    return Finding("version_mismatch", detail, next_step, file=entry.path, expected=entry.version_id, found=found)
