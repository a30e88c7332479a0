"""What a decision is called and how it is told: verdict, code, sentence, next step. One place, so that no two reports differ."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import assert_never
from uuid import uuid4

from valuestream_dagster.core.continuity import Blocked, Covered
from valuestream_dagster.core.decision import (
    Accept,
    Conflict,
    Decision,
    Duplicate,
    Held,
    Reject,
    Superseded,
    Verdict,
    Wait,
)
from valuestream_dagster.core.finding import Finding
from valuestream_dagster.core.manifest import Manifest
from valuestream_dagster.intake.observe import Arrival
from valuestream_dagster.ledger.rows import Receipt


@dataclass(frozen=True, slots=True)
class Told:
    """A decision in words. ``verdict`` is None where the delivery waits for its turn: that is no verdict on it."""

    verdict: Verdict | None
    code: str
    detail: str
    next_step: str
    findings: tuple[Finding, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether a run that ends with it may be green."""
        return self.verdict in {Verdict.ACCEPTED, Verdict.DUPLICATE, Verdict.SUPERSEDED, Verdict.COVERED}

    def __str__(self) -> str:
        return f"{self.detail} Next: {self.next_step}" if self.next_step else self.detail


def tell(manifest: Manifest, decision: Decision, *, declared: bool = True) -> Told:
    """The words for a decision on the delivery that ``manifest`` states.

    Args:
        manifest: the delivery.
        decision: what was decided.
        declared: whether a producer states it; of files without a manifest nothing is claimed but what they are (M7).
    """
    name, source = manifest.name, manifest.source
    match decision:
        case Accept(reuses):
            same = ", the bytes are those of the revision before and its files are used again" if reuses else ""
            compared = "every declared size and checksum agrees"
            agrees = compared if declared else "its rows fit; no manifest says what its bytes should be"
            return Told(Verdict.ACCEPTED, "accepted", f"{name}: {agrees}{same}.", "")
        case Duplicate(_):
            return Told(Verdict.DUPLICATE, "duplicate", f"{name} is here already with these bytes; nothing changed.", "")
        case Superseded(_, code, detail):
            return Told(Verdict.SUPERSEDED, code, f"{name}: {detail}; this one is recorded and not applied.", "")
        case Conflict(_, detail):
            return Told(
                Verdict.CONFLICT,
                "digest_conflict",
                f"{name}: {detail}; what is applied stays.",
                f"ask {source} which bytes are right and to send them under a higher revision, or decide by a ruling: "
                f"`valuestream explain {source}/{manifest.dataset} {manifest.key}` compares both and shows how.",
            )
        case Blocked(reason, _, why):
            return Told(None, reason.value, f"{name} waits: {why}.", _way_on(decision, source))
        case Covered(why):
            return Told(Verdict.COVERED, "covered", f"{name}: {why}; recorded, not applied.", "")
        case Wait(missing):
            named = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
            return Told(
                Verdict.WAITING,
                "incomplete",
                f"{name} is not complete, missing: {named}.",
                f"nothing, if it is still on its way; else ask {source} to send it.",
            )
        case Held(code, detail):
            return Told(
                Verdict.HELD,
                code,
                f"{name} is held for a person: {detail}; nothing was applied.",
                f"see `valuestream explain {source}/{manifest.dataset} {manifest.key}`; if it is right, let it go by "
                "`valuestream rule ... release`, else ask the producer for a higher revision.",
            )
        case Reject(findings):
            first = findings[0]
            more = f" ({len(findings)} findings in all)" if len(findings) > 1 else ""
            step = first.next_step or f"ask {source} for a corrected delivery under a higher revision."
            return Told(Verdict.REJECTED, first.code, f"{name}: {first}{more}; nothing was applied.", step, findings)
        case _:
            assert_never(decision)


def told_sealed(manifest: Manifest, decision: Blocked | Accept, *, known: bool) -> Told:
    """The words for a delivery whose bytes were sealed and checked before its turn; ``known``: they were here before."""
    name = manifest.name
    if known:
        return Told(Verdict.DUPLICATE, "duplicate", f"{name} is sealed already with these bytes, and waits.", "")
    if isinstance(decision, Accept):
        return Told(
            Verdict.WAITING, "ready", f"{name} is sealed and valid; it is applied by the next run.", "run `valuestream apply`."
        )
    told = tell(manifest, decision)
    detail = f"{name} is sealed and valid, nothing can take it away; it waits: {decision.why}."
    return Told(Verdict.WAITING, told.code, detail, told.next_step)


def _way_on(blocked: Blocked, source: str) -> str:
    if blocked.needs is None:
        return f"ask {source} for a full delivery."
    match blocked.reason.value:
        case "sequence_gap":
            return f"ask {source} for {blocked.needs}; it is applied by itself when it arrives."
        case "predecessor_failed":
            return f"see why {blocked.needs} failed, then run `valuestream apply` again."
        case "predecessor_rejected":
            return f"ask {source} for a corrected {blocked.needs}; see `valuestream receipts`."
        case "conflict":
            return f"settle {blocked.needs}: ask {source} for a higher revision of it."
        case _:
            return f"wait for {blocked.needs}, or ask {source} for what it lacks."


def receipt_of(
    feed: str,
    arrival: Arrival,
    told: Told,
    verdict: Verdict,
    at: datetime,
    *,
    digest: str | None = None,
    warnings: tuple[str, ...] = (),
    run_id: str | None = None,
) -> Receipt:
    """The ledger's record of one arrival and what became of it (M20)."""
    manifest = arrival.manifest
    return Receipt(
        receipt_id=uuid4().hex,
        received_at=at,
        feed=feed,
        verdict=verdict,
        code=told.code,
        detail=told.detail,
        next_step=told.next_step,
        manifest=arrival.stat.path,
        kind=manifest.kind,
        key=manifest.key,
        revision=manifest.revision,
        digest=digest,
        warnings=warnings,
        findings=tuple(finding.as_dict() for finding in told.findings),
        run_id=run_id,
        manifest_sha256=arrival.sha256,
    )
