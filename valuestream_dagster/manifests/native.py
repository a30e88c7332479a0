"""The native manifest (SURFACE, "Native manifest"): JSON bytes in, a core manifest or every fault of it out.

Total: no bytes make it raise. All faults are found in one pass, none hides the next; unknown fields are kept in ``extra`` and
never obeyed. A manifest with one bad entry states no delivery at all, and no path of it may be followed (case 32).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from types import MappingProxyType
from urllib.parse import unquote

from valuestream_dagster.core.finding import Finding
from valuestream_dagster.core.manifest import (
    Checksum,
    Entry,
    Kind,
    Manifest,
    Predecessor,
    UnusableManifest,
    normal_path,
    path_fault,
)
from valuestream_dagster.core.pattern import Named
from valuestream_dagster.core.rows import DeclaredControls
from valuestream_dagster.core.sequence import KeyProblem, Sequence, SequenceKey
from valuestream_dagster.manifests.checksum_text import STRENGTH, checksum_fault, read_checksum
from valuestream_dagster.manifests.strict_json import BOM, NotJson, exact_decimal, load, shown, whole

FINDINGS_LIMIT = 100
_ROLE = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_FIELDS = frozenset(
    [
        "source",
        "dataset",
        "period",
        "sequence",
        "revision",
        "kind",
        "files",
        "controls",
        "predecessor",
        "empty",
        "finality",
        "created_at",
    ]
)
_ENTRY_FIELDS = frozenset(["path", "bytes", "sha256", "md5", "checksum", "rows", "version_id", "role"])
_RESEND = "ask the producer for a corrected manifest."


def too_large(size_bytes: int, limit_bytes: int) -> UnusableManifest:
    """What a reader says of a manifest that it will not read."""
    detail = f"the manifest is {size_bytes} bytes, more than the limit of {limit_bytes}"
    return UnusableManifest(
        (
            Finding(
                "manifest_too_large",
                detail,
                "check that `include` selects manifests only, or raise the limit.",
                expected=f"at most {limit_bytes} bytes",
                found=f"{size_bytes} bytes",
            ),
        )
    )


def identify(data: bytes) -> tuple[str, str] | None:
    """(source, dataset) of a manifest, if that much can be read: to pass over those of another feed."""
    try:
        raw = load(data)
    except NotJson:
        return None
    source, dataset = raw.get("source"), raw.get("dataset")
    return (source, dataset) if isinstance(source, str) and isinstance(dataset, str) else None


def parse(
    data: bytes,
    *,
    sequence: Sequence,
    source: str,
    dataset: str,
    default_kind: Kind,
    entries_limit: int,
    allowed_kinds: frozenset[Kind] = frozenset(Kind),
    allow_empty: bool = False,
    named: Named | None = None,
) -> Manifest | UnusableManifest:
    """The delivery that the bytes state, or everything that is wrong with the statement.

    Args:
        data: the manifest file's bytes.
        sequence: the feed's keys.
        source: the feed's source, which the manifest must name.
        dataset: the feed's dataset, which the manifest must name.
        default_kind: kind where the manifest does not say.
        entries_limit: most entries that a manifest may list.
        allowed_kinds: kinds that the feed takes (ruling 1); another is ``kind_mismatch``.
        allow_empty: whether the feed takes an empty list of files that does not say ``empty``.
        named: what the manifest's name says; it fills in what the manifest leaves out, and where both speak they must agree.
    """
    try:
        raw = load(data)
    except NotJson as error:
        return UnusableManifest((Finding("manifest_unreadable", f"the manifest {error}", _RESEND),))
    reading = _Reading(raw)
    if data.startswith(BOM):
        reading.warnings.append("the manifest begins with a byte order mark")
    reading.feed(source, dataset)
    key, period = reading.key(sequence, named)
    revision = reading.revision(named.revision if named else None)
    kind = reading.kind((named.kind if named else None) or default_kind, allowed_kinds)
    if named is not None and named.kind is not None and kind is not None and kind is not named.kind:
        reading.disagrees("kind_mismatch", kind.value, named.kind.value)
    empty = reading.empty()
    entries = reading.entries(entries_limit, may_lack=empty or allow_empty, empty=empty)
    controls = reading.controls()
    predecessor = reading.predecessor()
    finality, created_at = reading.finality(), reading.text("created_at", raw)
    reading.keep_unknown("", raw, _FIELDS)
    if reading.findings or key is None or revision is None or kind is None:
        return UnusableManifest(reading.some_findings(), key, kind, revision)
    return Manifest(
        source=source,
        dataset=dataset,
        kind=kind,
        key=key,
        revision=revision,
        entries=entries,
        controls=controls,
        period=period,
        predecessor=predecessor,
        empty=empty,
        finality=finality,
        created_at=created_at,
        warnings=tuple(reading.warnings),
        extra=MappingProxyType(reading.extra),
    )


class _Reading:
    """One manifest being read: what was found wrong, what is only odd, and what was not understood."""

    def __init__(self, raw: Mapping[str, object]) -> None:
        self.raw = raw
        self.findings: list[Finding] = []
        self.warnings: list[str] = []
        self.extra: dict[str, object] = {}

    def fault(
        self, code: str, detail: str, *, file: str | None = None, expected: str | None = None, found: object = None
    ) -> None:
        """Note one fault of the statement."""
        text = None if found is None else found if isinstance(found, str) else shown(found)
        self.findings.append(Finding(code, detail, _RESEND, file=file, expected=expected, found=text))

    def some_findings(self) -> tuple[Finding, ...]:
        """The findings, bounded: after the limit only their number is told."""
        rest = len(self.findings) - FINDINGS_LIMIT
        shown = tuple(self.findings[:FINDINGS_LIMIT])
        return shown if rest <= 0 else (*shown, Finding("more_findings", f"and {rest} more faults", _RESEND))

    def keep_unknown(self, prefix: str, members: Mapping[str, object], known: frozenset[str]) -> None:
        """Keep what is not understood, under the name of its place."""
        for name in members.keys() - known:
            self.extra[prefix + name] = members[name]

    def text(self, name: str, members: Mapping[str, object]) -> str | None:
        """An optional text; anything else is a fault."""
        value = members.get(name)
        if value is None or isinstance(value, str):
            return value
        self.fault("field_invalid", f"`{name}` is not a text", expected="a text", found=value)
        return None

    def feed(self, source: str, dataset: str) -> None:
        """Source and dataset must be the feed's own."""
        for name, expected in (("source", source), ("dataset", dataset)):
            found = self.raw.get(name)
            if found != expected:
                told = "is missing" if found is None else f"is {shown(found)}"
                detail = f"`{name}` {told}, and the feed is {source}/{dataset}"
                self.fault("unknown_source", detail, expected=expected, found=found)

    def disagrees(self, code: str, stated: str, named: str) -> None:
        """Note that the manifest and its name say two things."""
        self.fault(code, f"the manifest says {stated}, and its name says {named}", expected=named, found=stated)

    def key(self, sequence: Sequence, named: Named | None) -> tuple[SequenceKey | None, str | None]:
        """The sequence key (``sequence``, else ``period``, else what the name says) and the business period."""
        texts: dict[str, str] = {}
        for name in ("sequence", "period"):
            value = self.raw.get(name)
            if isinstance(value, str):
                texts[name] = value
            elif value is not None:
                texts[name] = str(value) if isinstance(value, int) and not isinstance(value, bool) else shown(value)
        text = texts.get("sequence", texts.get("period"))
        if text is None and named is not None:
            return named.key, None
        if text is None:
            self.fault("key_missing", "neither `sequence` nor `period` is given", expected=sequence.expected)
            return None, None
        key = sequence.parse(text)
        if isinstance(key, KeyProblem):
            self.fault(key.code, key.detail, expected=key.expected, found=key.text)
        elif named is None or key == named.key:
            return key, texts.get("period")
        else:
            self.disagrees("key_mismatch", key.text, named.key.text)
        return named.key if named is not None else None, texts.get("period")

    def revision(self, named: int | None) -> int | None:
        """The revision; where it is not given, what the name says, else 1."""
        value = self.raw.get("revision", named or 1)
        revision = whole(value, 1)
        if revision is None:
            detail = "`revision` is not an integer from 1"
            self.fault("revision_invalid", detail, expected="an integer from 1", found=value)
        elif named is not None and revision != named:
            self.disagrees("revision_mismatch", str(revision), str(named))
        return revision

    def kind(self, default: Kind, allowed: frozenset[Kind]) -> Kind | None:
        """The kind, the feed's default where it is not given."""
        value = self.raw.get("kind", default.value)
        if not isinstance(value, str) or value not in list(Kind):
            self.fault("kind_invalid", "`kind` is neither full nor delta", expected="full or delta", found=value)
            return None
        kind = Kind(value)
        if kind not in allowed:
            expected = " or ".join(sorted(allowed))
            self.fault(
                "kind_mismatch", f"`kind` is {kind} and the feed takes {expected}", expected=expected, found=kind
            )
        return kind

    def empty(self) -> bool:
        """Whether the manifest says that there is nothing."""
        value = self.raw.get("empty")
        if value is None or isinstance(value, bool):
            return bool(value)
        self.fault("field_invalid", "`empty` is neither true nor false", expected="true or false", found=value)
        return False

    def finality(self) -> str | None:
        """``snapshot`` or ``official``, where given."""
        value = self.raw.get("finality")
        if value is None or value in ("snapshot", "official"):
            return None if value is None else str(value)
        detail = "`finality` is neither snapshot nor official"
        self.fault("field_invalid", detail, expected="snapshot or official", found=value)
        return None

    def predecessor(self) -> Predecessor | None:
        """The delivery that this one says it follows."""
        value = self.raw.get("predecessor")
        if value is None:
            return None
        if isinstance(value, dict):
            self.keep_unknown("predecessor.", value, frozenset({"period", "digest"}))
            key, digest = value.get("period"), value.get("digest")
            if isinstance(key, int) and not isinstance(key, bool):
                key = str(key)
            if isinstance(key, str) and key and (digest is None or isinstance(digest, str)):
                return Predecessor(key, digest)
        self.fault("field_invalid", "`predecessor` is not {period, digest}", expected="{period, digest?}", found=value)
        return None

    def controls(self) -> DeclaredControls:
        """Declared rows and exact totals."""
        value = self.raw.get("controls")
        if value is None:
            return DeclaredControls()
        if not isinstance(value, dict):
            self.fault("control_invalid", "`controls` is not an object", expected="{rows, totals}", found=value)
            return DeclaredControls()
        self.keep_unknown("controls.", value, frozenset({"rows", "totals"}))
        rows = value.get("rows")
        if rows is not None and whole(rows, 0) is None:
            self.fault("control_invalid", "`controls.rows` is no count", expected="an integer from 0", found=rows)
        totals = value.get("totals")
        if totals is None:
            totals = {}
        if not isinstance(totals, dict):
            self.fault(
                "control_invalid", "`controls.totals` is not an object", expected="{column: total}", found=totals
            )
            totals = {}
        exact: list[tuple[str, Decimal]] = []
        for column, total in totals.items():
            amount = exact_decimal(total)
            if amount is None:
                detail = f"the total of {shown(column)} is no decimal number"
                self.fault("control_invalid", detail, expected='a text such as "1234.50"', found=total)
            else:
                exact.append((column, amount))
        return DeclaredControls(whole(rows, 0), tuple(exact))

    def entries(self, limit: int, *, may_lack: bool, empty: bool) -> tuple[Entry, ...]:
        """The listed files, each once."""
        files = self.raw.get("files")
        if files is None and not empty:
            self.fault("entries_missing", "`files` is missing, and the manifest does not say `empty`")
        if files is None:
            return ()
        if not isinstance(files, list):
            self.fault("entry_invalid", "`files` is not a list", expected="a list of files", found=files)
            return ()
        if len(files) > limit:
            detail = f"the manifest lists {len(files)} files, more than the limit of {limit}"
            self.fault("entries_too_many", detail, expected=f"at most {limit}", found=str(len(files)))
            return ()
        if not files and not may_lack:
            self.fault("entries_missing", "`files` is empty, and the manifest does not say `empty`")
        listed: dict[str, Entry] = {}
        folded: dict[str, str] = {}
        for index, item in enumerate(files):
            entry = self._entry(item, f"files[{index}]")
            if entry is not None:
                self._list(entry, listed, folded)
        return tuple(listed.values())

    def _list(self, entry: Entry, listed: dict[str, Entry], folded: dict[str, str]) -> None:
        """Add an entry, or settle what it means that its path is there already (cases 27, 31)."""
        earlier = listed.get(entry.path)
        if earlier is not None:
            merged = _merged(earlier, entry)
            if merged is None:
                self.fault("duplicate_entry", "the path is listed twice with different declarations", file=entry.path)
            else:
                listed[entry.path] = merged
                self.warnings.append(f"{entry.path} is listed twice, alike; it counts once")
            return
        fold = unicodedata.normalize("NFC", entry.path).casefold()
        other = folded.setdefault(fold, entry.path)
        if other != entry.path:
            detail = f"the path differs from {other} only in case or Unicode form"
            self.fault("case_collision", detail, file=entry.path)
        listed[entry.path] = entry

    def _entry(self, item: object, place: str) -> Entry | None:
        """One listed file; None where its path cannot be used."""
        if not isinstance(item, dict):
            self.fault(
                "entry_invalid", f"`{place}` is not an object", expected="{path, bytes, sha256, rows}", found=item
            )
            return None
        declared = item.get("path")
        if not isinstance(declared, str):
            self.fault("entry_invalid", f"`{place}` has no `path`", expected="a relative path", found=declared)
            return None
        printable = declared.encode("utf-8", "backslashreplace").decode("utf-8")
        reason = path_fault(declared) or _escaped_fault(declared)
        path = normal_path(declared)
        if reason is None and (not path or declared.endswith(("/", "/."))):
            reason = "it names a folder"
        if reason is not None:
            self.fault("path_unsafe", f"the path {shown(printable)} is not safe: {reason}", file=printable)
            return None
        if path != declared:
            self.warnings.append(f"{declared} is read as {path}")
        self.keep_unknown(f"{place}.", item, _ENTRY_FIELDS)
        return Entry(
            path=path,
            bytes=self._count(item, "bytes", path),
            checksum=self._entry_checksum(item, path),
            rows=self._count(item, "rows", path),
            version_id=self.text("version_id", item),
            role=self._role(item, path),
        )

    def _count(self, item: Mapping[str, object], name: str, path: str) -> int | None:
        value = item.get(name)
        count = whole(value, 0)
        if value is not None and count is None:
            detail = f"`{name}` is no count"
            self.fault(f"{name}_invalid", detail, file=path, expected="an integer from 0", found=value)
        return count

    def _role(self, item: Mapping[str, object], path: str) -> str:
        """The role; only plain words, because it enters the digest's lines."""
        value = item.get("role")
        if value is None:
            return "data"
        if isinstance(value, str) and value.isascii() and _ROLE.fullmatch(value):
            return value
        self.fault(
            "role_invalid", "`role` is not a plain word", file=path, expected="letters, digits, _ . -", found=value
        )
        return "data"

    def _entry_checksum(self, item: Mapping[str, object], path: str) -> Checksum | None:
        """The strongest of the declared checksums; each must be one of its algorithm."""
        found: dict[str, Checksum] = {}
        for algorithm, value in self._declared_checksums(item, path):
            checksum = read_checksum(algorithm, value)
            if checksum is None:
                detail = f"the manifest's checksum is impossible: {checksum_fault(algorithm, value)}"
                self.fault("checksum_invalid", detail, file=path, expected=algorithm[:80], found=value[:130])
            elif found.setdefault(checksum.algorithm, checksum) != checksum:
                self.fault("checksum_invalid", f"two different {checksum.algorithm} are declared", file=path)
        strongest = next((found[name] for name in STRENGTH if name in found), None)
        if strongest is not None and len(found) > 1:
            self.warnings.append(f"{path} declares several checksums; {strongest.algorithm} alone is compared")
        return strongest

    def _declared_checksums(self, item: Mapping[str, object], path: str) -> list[tuple[str, str]]:
        """(algorithm, value) as they are declared; a wrong shape is a fault."""
        pairs: list[tuple[object, object]] = [
            (name, item[name]) for name in ("sha256", "md5") if item.get(name) is not None
        ]
        nested = item.get("checksum")
        if isinstance(nested, dict):
            pairs.append((nested.get("algorithm"), nested.get("value")))
        elif nested is not None:
            pairs.append((None, nested))
        texts: list[tuple[str, str]] = []
        for algorithm, value in pairs:
            if isinstance(algorithm, str) and isinstance(value, str):
                texts.append((algorithm, value))
            else:
                expected = "a text, or checksum: {algorithm, value}"
                self.fault("checksum_invalid", "the checksum is no text", file=path, expected=expected, found=value)
        return texts


def _escaped_fault(path: str) -> str | None:
    """Why the path is unsafe once percent escapes are undone, as some store or proxy may do (case 32)."""
    if "%" not in path:
        return None
    fault = path_fault(unquote(path, errors="replace"))
    return f"with its percent escapes undone, {fault}" if fault else None


def _merged(one: Entry, two: Entry) -> Entry | None:
    """Two entries of one path as one, or None where they contradict each other."""
    pairs = (
        (one.bytes, two.bytes),
        (one.checksum, two.checksum),
        (one.rows, two.rows),
        (one.version_id, two.version_id),
    )
    if one.role != two.role or any(a is not None and b is not None and a != b for a, b in pairs):
        return None
    return replace(
        one,
        bytes=one.bytes if one.bytes is not None else two.bytes,
        checksum=one.checksum or two.checksum,
        rows=one.rows if one.rows is not None else two.rows,
        version_id=one.version_id or two.version_id,
    )
