"""Random histories of all that can happen to a feed, against a plain model of what readers must see (M10-M20, L5-L9, L13-L25).

Deliveries, repeats, other bytes under one number, wrong ones, deaths, recovery, rulings, edits of the declaration, recomputation,
vacuum, a lost ledger. After every step: readers see exactly what the model says, every file that they see is as it was recorded,
nothing that is on disk is unaccounted for after a vacuum, and every arrival has its receipt.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from valuestream_dagster import upkeep
from valuestream_dagster.core.decision import RulingWord
from valuestream_dagster.core.ruling import Asked
from valuestream_dagster.errors import NotApplied
from valuestream_dagster.publication.rulings import RulingAsked
from valuestream_dagster.publication.run import FeedRun
from valuestream_tests.publication.test_recompute import Dies
from valuestream_tests.world import PERIODS, World

KEYS, REVISIONS, VARIANTS = (1, 2), (1, 2, 3), ("a", "b", "c")
# The clock is far ahead of every file, so that vacuum takes all that it may.
SETTINGS = "retention: {input_days: 0, superseded_days: 0, reader_grace_minutes: 0}\n"
DECLARATIONS = tuple(PERIODS.replace("DECIMAL(18,2)", type_) for type_ in ("DECIMAL(18,2)", "DECIMAL(20,3)", "DECIMAL(22,4)"))


def amount(key: int, revision: int, variant: str) -> str:
    return f"{key}{revision}.{VARIANTS.index(variant) + 1}0"


@dataclass
class Key:
    """What the model knows of one key: contents by revision in order of arrival, what is applied, what is open, what was ruled."""

    bound: dict[int, list[str]] = field(default_factory=dict)
    applied: tuple[int, str | None] | None = None  # None in place of a content: retracted
    conflicts: dict[int, list[str]] = field(default_factory=dict)
    rulings: dict[int, tuple[str, str | None, tuple[str, ...]]] = field(default_factory=dict)
    released: tuple[int, str] | None = None

    def arrive(self, revision: int, variant: str) -> None:
        """The one decision, in a dozen lines."""
        known = self.bound.setdefault(revision, [])
        first = known[0] if known else None
        if variant not in known:
            known.append(variant)
        if self.applied is not None and revision < self.applied[0]:
            return
        word, chosen, settles = self.rulings.get(revision, ("", None, ()))
        if word == "retract" or variant in settles:
            return
        if chosen != variant:
            reference = self.applied[1] if self.applied is not None and self.applied[0] == revision else first
            if reference is not None and reference != variant:
                opened = self.conflicts.setdefault(revision, [])
                if variant not in opened:
                    opened.append(variant)
                return
        self.apply(revision, variant)

    def apply(self, revision: int, variant: str | None) -> None:
        self.applied = (revision, variant)
        self.conflicts = {open_: variants for open_, variants in self.conflicts.items() if open_ >= revision and variants}


class Histories(RuleBasedStateMachine):
    """One deployment and its model, step by step."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp(prefix="valuestream-")
        self.world = World(Path(self.folder), settings=SETTINGS, now="2040-01-01T00:00:00Z")
        self.keys = {key: Key() for key in KEYS}
        self.declared = 0
        self.arrivals = 0
        self.waiting: list[tuple[int, int, str]] = []
        self.manifests: set[str] = set()

    def teardown(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- what producers do -------------------------------------------------------------------------------------------

    @rule(key=st.sampled_from(KEYS), revision=st.sampled_from(REVISIONS), variant=st.sampled_from(VARIANTS))
    def deliver(self, key: int, revision: int, variant: str) -> None:
        self.arrivals += 1
        orders = self.world.producer()
        made = orders.make(key, [(key, amount(key, revision, variant), "U")], revision=revision, name=f"arrival{self.arrivals}")
        orders.hand_over(made)
        self.manifests.add(made.manifest_path)
        self.waiting.append((key, revision, variant))

    @rule(key=st.sampled_from(KEYS), revision=st.sampled_from(REVISIONS))
    def deliver_what_is_wrong(self, key: int, revision: int) -> None:
        self.arrivals += 1
        orders = self.world.producer()
        made = orders.make(key, [(key, "9.00", "U")], revision=revision, name=f"arrival{self.arrivals}").with_entry(rows=7)
        orders.hand_over(made)
        self.manifests.add(made.manifest_path)

    # --- what the program does ---------------------------------------------------------------------------------------

    @rule()
    def apply(self) -> None:
        self.world.apply()
        self.settled()

    @precondition(lambda self: self.waiting)
    @rule(after=st.integers(0, 2), recover=st.booleans())
    def die_while_applying(self, after: int, recover: bool) -> None:
        """Killed before one of its deliveries is recorded; the rest of it is gone on with later, and ends the same."""
        made: list[object] = []
        record_key = FeedRun._record_key

        def dying(run: FeedRun, session: object, prepared: object) -> object:
            if len(made) == after:
                raise Dies
            made.append(prepared)
            return record_key(run, session, prepared)  # type: ignore[arg-type]

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(FeedRun, "_record_key", dying)
            with suppress(Dies):
                self.world.apply()
        if recover:
            upkeep.recover(self.world.opened, self.world.opened.selected(None))
        self.world.apply()
        self.settled()

    def settled(self) -> None:
        """The model after an apply: what arrived, newest revision of a key first, in the order in which runs take them."""
        for key in KEYS:
            model = self.keys[key]
            if model.released is not None:
                revision, variant = model.released
                model.released = None
                if model.applied is None or model.applied[0] <= revision:
                    model.apply(revision, variant)
            mine = sorted((one for one in self.waiting if one[0] == key), key=lambda one: -one[1])
            for _, revision, variant in mine:
                model.arrive(revision, variant)
        self.waiting.clear()

    @precondition(lambda self: not self.waiting)
    @rule(key=st.sampled_from(KEYS), word=st.sampled_from(["keep", "release", "retract"]))
    def rule_on_a_conflict(self, key: int, word: str) -> None:
        model = self.keys[key]
        open_ = {revision: variants for revision, variants in model.conflicts.items() if variants}
        if not open_ or model.released is not None:
            return
        revision, others = max(open_.items())
        opened = self.world.opened
        feed = opened.feed("acme/orders")
        digests = dict(zip(model.bound[revision], self.digests(key, revision), strict=True))
        chosen = others[0] if word == "release" else None
        asked = Asked(RulingWord(word), revision, digests[chosen][:12] if chosen else None)
        opened.rule(feed, RulingAsked(opened.key(feed, str(key)), None, asked, "ada", "so"))
        known = model.bound[revision]
        if word == "keep":
            applied = model.applied
            kept = applied[1] if applied is not None and applied[0] == revision else known[0]
            model.rulings[revision] = (word, kept, tuple(one for one in known if one != kept))
        elif word == "release" and chosen is not None:
            model.rulings[revision] = (word, chosen, tuple(one for one in known if one != chosen))
            model.released = (revision, chosen)
        else:
            model.rulings[revision] = (word, None, tuple(known))
            model.apply(revision, None)
        model.conflicts.pop(revision, None)

    def digests(self, key: int, revision: int) -> list[str]:
        sql = f"SELECT digest FROM deliveries WHERE key = '{key}' AND revision = {revision} ORDER BY rowid"
        return [row[0] for row in self.world.ledger(sql)]

    # --- what people do to the deployment ----------------------------------------------------------------------------

    @precondition(lambda self: not self.waiting)
    @rule(declared=st.sampled_from(range(len(DECLARATIONS))), recompute=st.booleans())
    def edit_the_declaration(self, declared: int, recompute: bool) -> None:
        self.declared = declared
        (self.world.root / "feeds/orders.yaml").write_text(DECLARATIONS[declared])
        self.world.settle()
        if recompute:
            opened = self.world.opened
            done = opened.recompute(opened.feed("acme/orders"))
            assert done.refused == []
            assert opened.plan(opened.feed("acme/orders")).stale.deliveries == ()

    @precondition(lambda self: not self.waiting)
    @rule()
    def vacuum(self) -> None:
        self.world.settle()
        try:
            self.world.opened.vacuum(carry_out=True)
        except NotApplied:  # a run died with a delivery sealed and not recorded
            upkeep.recover(self.world.opened, self.world.opened.selected(None))
            self.world.apply()
            self.world.opened.vacuum(carry_out=True)
        assert self.world.published() == self.world.named_now()

    @precondition(lambda self: not self.waiting and self.manifests)
    @rule()
    def lose_the_ledger(self) -> None:
        self.world.settle()
        (self.world.root / "state/ledger.duckdb").unlink()
        upkeep.rebuild_ledger(self.world.opened)

    # --- what must hold ----------------------------------------------------------------------------------------------

    @invariant()
    def readers_see_what_the_model_says(self) -> None:
        if not self.manifests or self.waiting:
            return
        self.world.settle()
        seen = {key: float(value) for key, value in self.world.query("SELECT id, amount FROM acme.orders")}
        wanted = {
            key: float(amount(key, model.applied[0], model.applied[1]))
            for key, model in self.keys.items()
            if model.applied is not None and model.applied[1] is not None
        }
        assert seen == wanted
        conflicting = tuple(str(key) for key in KEYS if any(self.keys[key].conflicts.values()))
        assert self.world.status().conflicts == conflicting

    @invariant()
    def every_file_that_readers_see_is_as_it_was_recorded(self) -> None:
        if self.manifests and not self.waiting:
            assert self.world.opened.verify(None, inputs=True).faults == ()

    @invariant()
    def every_arrival_has_its_receipt(self) -> None:
        if not self.waiting:
            told = {receipt.manifest for receipt in self.world.receipts()}
            unread = {path for path in self.manifests if path not in told}
            assert not unread or self.world.opened.plan(self.world.opened.feed("acme/orders")).claimable


# Every day the same few histories; many random ones in the thorough set. Not shrunk: that takes longer than finding did.
_ANY = settings(deadline=None, suppress_health_check=list(HealthCheck), phases=(Phase.explicit, Phase.reuse, Phase.generate))
FEW = settings(_ANY, max_examples=4, stateful_step_count=12, derandomize=True, database=None)
MANY = settings(_ANY, max_examples=100, stateful_step_count=30)


def test_whatever_happens_readers_see_what_the_model_says() -> None:
    """S7, S8, M16, L23, ruling 4 and 12"""
    run_state_machine_as_test(Histories, settings=FEW)


@pytest.mark.thorough
@pytest.mark.timeout(3600)
def test_more_histories_of_everything() -> None:
    run_state_machine_as_test(Histories, settings=MANY)
