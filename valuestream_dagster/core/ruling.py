"""What a person may rule about a delivery that nothing else can settle, and when such a ruling fits the facts (ruling 4). Pure."""

from __future__ import annotations

from dataclasses import dataclass

from valuestream_dagster.core.decision import KeyHistory, Ruled, RulingWord
from valuestream_dagster.core.manifest import Digest


@dataclass(frozen=True, slots=True)
class RulingRefused:
    """Why a ruling does not fit what is known, and what to do."""

    detail: str
    next_step: str = "see what is known now with `valuestream explain`, and rule on that."


@dataclass(frozen=True, slots=True)
class Asked:
    """What a person asked for.

    Args:
        word: keep, release or retract.
        revision: which revision; None where only one can be meant.
        digest: the bytes to decide for, or the first digits of their digest.
        against: the bytes that the person saw and decides against, or first digits; empty: whatever there is.
    """

    word: RulingWord
    revision: int | None = None
    digest: str | None = None
    against: tuple[str, ...] = ()


def open_revisions(history: KeyHistory) -> tuple[int, ...]:
    """The revisions that wait for a person, ascending."""
    return tuple(sorted({bound.revision for bound in (*history.conflicts, *history.held)}))


def ruled_by(asked: Asked, history: KeyHistory) -> Ruled | RulingRefused:
    """The decision that ``asked`` makes about one (kind, key), or why the facts do not allow it.

    Args:
        asked: what a person asked for.
        history: what is known now.
    """
    revision = _revision(asked, history)
    if isinstance(revision, RulingRefused):
        return revision
    known = tuple(dict.fromkeys(bound.digest for bound in history.bound if bound.revision == revision))
    if not known:
        return RulingRefused(f"no bytes of revision {revision} were ever found valid")
    applied = history.applied if history.applied is not None and history.applied.revision == revision else None
    if history.applied is not None and history.applied.revision > revision:
        return RulingRefused(f"revision {history.applied.revision} is applied already, which settled revision {revision}")
    match asked.word:
        case RulingWord.KEEP:
            return _keep(asked, history, revision, known, applied.digest if applied else None)
        case RulingWord.RELEASE:
            return _release(asked, history, revision, known, applied.digest if applied else None)
        case RulingWord.RETRACT:
            newest = history.ruled(revision)
            if newest is not None and newest.ruling is RulingWord.RETRACT:
                return RulingRefused(f"revision {revision} is retracted already")
            if asked.digest is not None and (applied is None or not _names(asked.digest, applied.digest)):
                return RulingRefused(f"what is applied of revision {revision} is not {asked.digest}")
            return Ruled(RulingWord.RETRACT, revision, None, known)
        case RulingWord.WAIVE:
            return RulingRefused("a waiver is about a key that is not there, not about bytes")


def _revision(asked: Asked, history: KeyHistory) -> int | RulingRefused:
    if asked.revision is not None:
        return asked.revision
    waiting = open_revisions(history)
    if len(waiting) == 1:
        return waiting[0]
    if len(waiting) > 1:
        return RulingRefused(f"revisions {', '.join(map(str, waiting))} wait for a decision", "say which with --revision.")
    if asked.word is RulingWord.RETRACT and history.applied is not None:
        return history.applied.revision
    return RulingRefused("nothing of it waits for a decision")


def _keep(
    asked: Asked, history: KeyHistory, revision: int, known: tuple[Digest, ...], applied: Digest | None
) -> Ruled | RulingRefused:
    """The applied bytes stay, else the first that were sealed; a held delivery is not applied, ever."""
    others = tuple(bound.digest for bound in history.conflicts if bound.revision == revision)
    if others:
        kept = applied or known[0]
        if asked.digest is not None and not _names(asked.digest, kept):
            what = "applied" if applied else "sealed first"
            detail = f"`keep` keeps what was {what}, {kept.short}, not {asked.digest}"
            return RulingRefused(detail, "use `release` for other bytes.")
        settles = tuple(digest for digest in known if digest != kept)
        return _against(asked, settles) or Ruled(RulingWord.KEEP, revision, kept, settles)
    held = tuple(bound.digest for bound in history.held if bound.revision == revision)
    if not held:
        return RulingRefused(f"revision {revision} is neither in conflict nor held")
    return _against(asked, held) or Ruled(RulingWord.KEEP, revision, None, held)


def _release(
    asked: Asked, history: KeyHistory, revision: int, known: tuple[Digest, ...], applied: Digest | None
) -> Ruled | RulingRefused:
    """The named bytes become the revision's publication, whatever is applied of it now."""
    waiting = [bound.digest for bound in (*history.conflicts, *history.held) if bound.revision == revision]
    if asked.digest is None:
        if len(waiting) != 1:
            return RulingRefused(
                f"{len(waiting)} contents of revision {revision} wait, so it must be said which one", "say which with --digest."
            )
        released = waiting[0]
    else:
        named = [digest for digest in known if _names(asked.digest, digest)]
        if len(named) != 1:
            what = "no" if not named else "more than one"
            return RulingRefused(f"{what} content of revision {revision} has a digest that begins with {asked.digest}")
        released = named[0]
    if released == applied:
        return RulingRefused(f"{released.short} is what is applied of revision {revision}", "use `keep` to settle for it.")
    settles = tuple(digest for digest in known if digest != released)
    return _against(asked, settles) or Ruled(RulingWord.RELEASE, revision, released, settles)


def _against(asked: Asked, settles: tuple[Digest, ...]) -> RulingRefused | None:
    """Whether what is decided against is what the person had seen."""
    if not asked.against:
        return None
    unseen = [digest for digest in settles if not any(_names(text, digest) for text in asked.against)]
    gone = [text for text in asked.against if not any(_names(text, digest) for digest in settles)]
    if unseen:
        return RulingRefused(f"the facts have changed: {unseen[0].short} has arrived too")
    return RulingRefused(f"the facts have changed: there is no {gone[0]} to decide against") if gone else None


def _names(text: str, digest: Digest) -> bool:
    return len(text) >= 4 and digest.hex.startswith(text.lower())
