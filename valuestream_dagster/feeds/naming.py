"""How a delivery is known where names say it, or where there is no manifest: completion, and what goes together.

A completion is a word or ``{kind: ..., options}``. Which manifest, pattern, revision and completion fit each other is one set of
rules (C5, M2): a feed without a manifest needs a pattern, and something that says when its files are whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, StrictInt, WithJsonSchema

from valuestream_dagster.core.pattern import NamePattern, compile_pattern
from valuestream_dagster.core.pattern_text import PatternFault
from valuestream_dagster.core.sequence import Sequence
from valuestream_dagster.feeds.closed_model import ClosedModel, Fault, not_built, refuse

QUIET_SECONDS = 300
EVERY_FILE = ("**/*",)
_KINDS = ("manifest", "parts", "quiet")
_NOT_BUILT = frozenset({"marker", "sidecar", "archive", "state", "trailer"})
_INSTEAD = "manifest, or for files without one: parts, {kind: quiet, seconds: 300}"


class CompletionDeclaration(ClosedModel):
    """The agreed sign that a delivery is whole (M2)."""

    not_built_fields: ClassVar[frozenset[str]] = frozenset({"roles"})

    kind: Literal["manifest", "parts", "quiet"] = Field(description="`manifest`; without one `parts` or `quiet`.")
    seconds: Annotated[StrictInt, Field(ge=1, le=30 * 86_400)] | None = Field(
        default=None, description=f"For `quiet`: for how long no file of a delivery may change ({QUIET_SECONDS})."
    )

    def faults(self) -> Iterator[Fault]:
        """Rules over the fields together."""
        if self.kind != "quiet" and self.seconds is not None:
            what = f"completion by {self.kind} has no options"
            yield Fault(("seconds",), what, f"completion: {self.kind}", ("kind", "seconds"))


def _completion(value: Any) -> Any:
    """A word is the completion of that kind without options; what is designed and not built is refused by its name."""
    kind = value.get("kind") if isinstance(value, Mapping) else value
    if isinstance(kind, CompletionDeclaration):
        return value
    if not isinstance(kind, str):
        refuse("completion needs a kind", _INSTEAD)
    if kind in _NOT_BUILT:
        refuse(not_built(f"completion: {kind}"), _INSTEAD)
    if kind not in _KINDS:
        near = get_close_matches(kind, _KINDS, 1, 0.6)
        what = f"`{kind[:80]}` is no value of `completion`"
        refuse(f"{what}; did you mean `{near[0]}`?" if near else what, near[0] if near else _INSTEAD)
    return value if isinstance(value, Mapping) else {"kind": kind}


_OPTIONS = {"kind": {"enum": list(_KINDS)}, "seconds": {"type": "integer", "minimum": 1}}
Completion = Annotated[
    CompletionDeclaration,
    BeforeValidator(_completion),
    WithJsonSchema(
        {"anyOf": [{"enum": list(_KINDS)}, {"type": "object", "properties": _OPTIONS, "additionalProperties": False}]}
    ),
]


def pattern_of(text: str | None, sequence: Sequence) -> NamePattern | None:
    """The compiled pattern; None where there is none, or where it is faulty (``pattern_faults`` says how)."""
    found = compile_pattern(text, sequence) if text is not None else None
    return found if isinstance(found, NamePattern) else None


def pattern_faults(text: str | None, sequence: Sequence, *, from_name: bool) -> Iterator[Fault]:
    """What is wrong with ``sequence.pattern`` by itself, and that ``from: name`` needs one."""
    if text is None:
        if from_name:
            what = "the key is read from the name, but nothing says where it stands in it"
            yield Fault(("from",), what, 'pattern: "orders-{date:YYYYMMDD}.csv"', ("from", "pattern"))
        return
    found = compile_pattern(text, sequence)
    if isinstance(found, PatternFault):
        yield Fault(("pattern",), f"the pattern cannot be used: {found.detail}", found.instead, ("pattern", "kind", "cadence"))


def naming_faults(
    *,
    without_manifest: bool,
    pattern: NamePattern | None,
    pattern_given: bool,
    key_from: str | None,
    revision: str | None,
    completion: CompletionDeclaration | None,
) -> Iterator[Fault]:
    """Which of manifest, pattern, revision and completion do not go together.

    Args:
        without_manifest: ``manifest: none``.
        pattern: the compiled pattern, where there is a usable one.
        pattern_given: whether one is written at all.
        key_from: ``sequence.from`` as it is written, or None.
        revision: ``revision`` as it is written, or None.
        completion: as it is written, or None.
    """
    yield from _faults_of_revision(pattern, revision, without_manifest=without_manifest, pattern_given=pattern_given)
    if not without_manifest:
        yield from _faults_beside_a_manifest(pattern, completion)
        return
    if not pattern_given:
        what = "without a manifest only the names say which delivery a file belongs to, and there is no pattern"
        yield Fault(("manifest",), what, 'sequence: {pattern: "orders-{date:YYYYMMDD}.csv"}', ("manifest", "sequence"))
    if key_from == "manifest":
        yield Fault(("sequence", "from"), "there is no manifest to read the key from", "from: name", ("manifest", "sequence"))
    kind = completion.kind if completion else None
    if kind == "manifest":
        what = "there is no manifest that could complete a delivery"
        yield Fault(("completion",), what, "parts, or {kind: quiet, seconds: 300}", ("manifest", "completion"))
    if pattern is None:
        return
    reads = ("manifest", "completion", "sequence")
    if pattern.asks("parts") and not pattern.asks("part"):
        yield Fault(("sequence", "pattern"), "names say how many parts there are, and not which they are", "{part}of{parts}", reads)
    if kind == "parts" and not pattern.asks("parts"):
        what = "completion by parts needs names that say how many there are"
        yield Fault(("completion",), what, 'a pattern with "{part}of{parts}", or quiet', reads)
    if kind == "quiet" and pattern.asks("parts"):
        yield Fault(("completion",), "the names say how many parts there are: that is better than quiet", "parts", reads)


def _faults_of_revision(
    pattern: NamePattern | None, revision: str | None, *, without_manifest: bool, pattern_given: bool
) -> Iterator[Fault]:
    reads = ("manifest", "revision", "sequence")
    if revision == "manifest" and without_manifest:
        yield Fault(("revision",), "there is no manifest to read the revision from", "name, with {revision} in the pattern", reads)
    if revision == "name" and (not pattern_given or (pattern is not None and not pattern.asks("revision"))):
        what = "the revision is read from the name, but the pattern has no {revision}"
        yield Fault(("revision",), what, 'pattern: "orders-{date:YYYYMMDD}-r{revision}.csv"', reads)


def _faults_beside_a_manifest(pattern: NamePattern | None, completion: CompletionDeclaration | None) -> Iterator[Fault]:
    if completion is not None and completion.kind != "manifest":
        what = "the manifest says what completes a delivery, and is better evidence"
        yield Fault(("completion",), what, "manifest, or manifest: none", ("manifest", "completion"))
    asked = [name for name in ("part", "parts", "role") if pattern is not None and pattern.asks(name)]
    if asked:
        what = f"the pattern is for the names of manifests, which have no {asked[0]}: the manifest lists the files"
        yield Fault(("sequence", "pattern"), what, "{*} in its place, or manifest: none", ("manifest", "sequence"))
