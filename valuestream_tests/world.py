"""A whole deployment in a temporary folder, and what tests ask of it: deliver, apply, look at what readers see.

``apply`` goes the way of the command line without Dagster: plan, note, run what is claimable, until nothing is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from valuestream_dagster.core.decision import Verdict
from valuestream_dagster.deployment import Deployment, open_deployment
from valuestream_dagster.ledger.rows import Receipt
from valuestream_dagster.publication.outcomes import KeyOutcome
from valuestream_dagster.publication.publish import Publisher
from valuestream_dagster.publication.status import FeedStatus
from valuestream_tests.producer import Producer, into_folder

NOW = "2026-09-10T12:00:00Z"
COLUMNS = '{id: BIGINT, amount: "DECIMAL(18,2)", op: VARCHAR}'
PASSES = 50
# One for all worlds: opening a connection costs ten times what attaching to one does.
_READER = duckdb.connect()

PERIODS = f"""\
source: acme
dataset: orders
landing: landing/orders
columns: {COLUMNS}
key: [id]
controls: {{totals: [amount]}}
sequence: {{kind: integer}}
"""
REQUIRED = PERIODS.replace("{kind: integer}", '{kind: integer, continuity: required, baseline: "1"}')
CHAIN = (
    PERIODS.replace("{kind: integer}", "{kind: integer, continuity: required, baseline: full}")
    + "mode: chain\nkind: delta\ndelete_when: \"op = 'D'\"\n"
)
LOOSE_CHAIN = CHAIN.replace(", continuity: required, baseline: full", "")


def another(text: str, dataset: str, landing: str | None = None) -> str:
    """The same declaration of another dataset, with a landing place of its own unless one is given."""
    place = landing or f"landing/{dataset}"
    return text.replace("dataset: orders", f"dataset: {dataset}").replace("landing/orders", place)


@dataclass(frozen=True, slots=True)
class Seen:
    """All that anybody can see of a feed: what must be equal when nothing changed."""

    rows: tuple[tuple[Any, ...], ...]
    everything: tuple[tuple[Any, ...], ...]
    publications: tuple[tuple[Any, ...], ...]
    files: frozenset[str]


class World:
    """A deployment folder.

    Args:
        root: where it is made.
        feeds: declarations by file name.
        settings: text of ``valuestream.yaml``.
        now: the clock's reading.
    """

    def __init__(
        self, root: Path, feeds: str | Mapping[str, str] = PERIODS, *, settings: str = "", now: str = NOW
    ) -> None:
        self.root = root
        self.now = now
        declared = {"orders.yaml": feeds} if isinstance(feeds, str) else feeds
        (root / "feeds").mkdir(parents=True, exist_ok=True)
        for path, text in {"valuestream.yaml": settings, **{f"feeds/{name}": text for name, text in declared.items()}}.items():
            if not (root / path).exists() or (root / path).read_text() != text:  # another process may be reading it
                (root / path).write_text(text)

    @property
    def opened(self) -> Deployment:
        """The deployment as a new process opens it."""
        return open_deployment(self.root, {"VALUESTREAM_NOW": self.now})

    def landing(self, dataset: str = "orders") -> Path:
        """The folder where a dataset is handed over."""
        return self.root / "landing" / dataset

    def producer(self, dataset: str = "orders", *, landing: str | None = None) -> Producer:
        """Who hands over that dataset."""
        return Producer(into_folder(self.landing(landing or dataset)), dataset=dataset)

    # --- acting ------------------------------------------------------------------------------------------------------

    def apply(
        self, feed: str = "acme/orders", *, around: Callable[[Publisher], Publisher] = lambda publisher: publisher
    ) -> list[KeyOutcome]:
        """Run what is claimable until nothing is."""
        return apply(self.opened, feed, around=around)

    # --- looking -----------------------------------------------------------------------------------------------------

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """What the published catalogue answers; it is taken as it is, not refreshed."""
        asked = _READER.cursor()
        asked.execute(f"ATTACH '{self.root / 'state/catalog.duckdb'}' AS shown (READ_ONLY)")
        try:
            asked.execute("USE shown")
            return asked.execute(sql).fetchall()
        finally:
            asked.execute("USE memory")
            asked.execute("DETACH shown")
            asked.close()

    def rows_in(self, view: str) -> list[tuple[Any, ...]]:
        """All rows of a view, in their order; none where nothing was ever shown."""
        self.settle()
        return self.query(f"FROM {view} ORDER BY ALL")

    def rows(self, feed: str = "acme/orders") -> list[tuple[int, str]]:
        """The current rows as readers see them: (id, amount as text), in order of id."""
        source, dataset = feed.split("/")
        return self.query(f'SELECT id, amount::VARCHAR FROM "{source}"."{dataset}" ORDER BY ALL')

    def amounts(self, feed: str = "acme/orders") -> dict[int, str]:
        """Amount by id of the current rows; ids are unique in them or the test fails."""
        rows = self.rows(feed)
        found = dict(rows)
        assert len(found) == len(rows), rows
        return found

    def by_key(self, feed: str = "acme/orders") -> dict[str, int]:
        """The visible revision of each key in ``__all``."""
        source, dataset = feed.split("/")
        return dict(self.query(f'SELECT DISTINCT _key, _revision FROM "{source}"."{dataset}__all" ORDER BY ALL'))

    def seen(self, feed: str = "acme/orders") -> Seen:
        """All that can be seen of the feed."""
        source, dataset = feed.split("/")
        return Seen(
            tuple(self.query(f'SELECT * FROM "{source}"."{dataset}" ORDER BY ALL')),
            tuple(self.query(f'SELECT * FROM "{source}"."{dataset}__all" ORDER BY ALL')),
            tuple(
                self.query(
                    f"""SELECT publication_id, kind, key, revision, digest, visible FROM valuestream.publications
                        WHERE feed = '{feed}' ORDER BY ALL"""
                )
            ),
            self.published(feed),
        )

    def published(self, feed: str = "acme/orders") -> frozenset[str]:
        """Every file below the feed's published folder, named by anybody or not."""
        folder = self.root / "state/store/published" / feed
        return frozenset(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())

    def named_files(self, feed: str = "acme/orders") -> frozenset[str]:
        """The published files that the catalogue names."""
        folder = str(self.root / "state/store/published" / feed) + "/"
        return frozenset(
            str(row[0]).removeprefix(folder)
            for row in self.query(
                f"SELECT path FROM valuestream.files SEMI JOIN (FROM valuestream.publications WHERE feed = '{feed}') "
                "USING (publication_id)"
            )
        )

    def named_now(self, feed: str = "acme/orders") -> frozenset[str]:
        """The published files that readers see."""
        folder = str(self.root / "state/store/published" / feed) + "/"
        return frozenset(
            str(row[0]).removeprefix(folder)
            for row in self.query(
                f"SELECT path FROM valuestream.files SEMI JOIN (FROM valuestream.publications WHERE feed = '{feed}' AND visible) "
                "USING (publication_id)"
            )
        )

    def status(self, feed: str = "acme/orders") -> FeedStatus:
        """How the feed stands."""
        opened = self.opened
        return opened.status(opened.feed(feed))

    def receipts(self, feed: str | None = "acme/orders") -> list[Receipt]:
        """All receipts, oldest first."""
        return list(self.opened.receipts(feed))

    def verdicts(self, feed: str = "acme/orders") -> list[tuple[str, int | None, str, str]]:
        """(key, revision, verdict, code) of all receipts, oldest first."""
        return [
            (receipt.key.text if receipt.key else "?", receipt.revision, receipt.verdict.value, receipt.code)
            for receipt in self.receipts(feed)
        ]

    def last(self, verdict: Verdict, feed: str = "acme/orders") -> Receipt:
        """The newest receipt, which must have that verdict."""
        receipt = self.receipts(feed)[-1]
        assert receipt.verdict is verdict, receipt
        return receipt

    def ledger(self, sql: str) -> list[tuple[Any, ...]]:
        """What the ledger itself answers."""
        with self.opened.ledger.session() as session:
            return session.connection.execute(sql).fetchall()

    def settle_only(self) -> None:
        """Settle what a run that died left, and do nothing else."""
        self.opened.recover(self.opened.feed("acme/orders"))

    def settle(self) -> None:
        """Bring the catalogue up to date, as any command does."""
        self.opened.refresh_catalogue()


def apply(
    opened: Deployment,
    name: str = "acme/orders",
    *,
    around: Callable[[Publisher], Publisher] = lambda publisher: publisher,
) -> list[KeyOutcome]:
    """Run what is claimable of a feed until nothing is; each key at most once.

    Args:
        opened: the deployment.
        name: the feed.
        around: puts other parts (a landing place, a store, a ledger) around or in place of the publisher's own.
    """
    feed = opened.feed(name)
    done: set[str] = set()
    outcomes: list[KeyOutcome] = []
    publisher = around(opened.publisher(feed))
    for number in range(PASSES):
        seen = opened.settled(opened.glance(feed)) if number == 0 else opened.glance(feed)
        plan = seen.plan(retry_failed=number == 0)
        opened.note(plan)
        keys = [key for key in plan.claimable if key.text not in done]
        if not keys:
            opened.take_in_early(plan)
            return outcomes
        with publisher.open_run(keys) as run:
            for visible in run.publish(keys):
                outcomes += visible
        done |= {key.text for key in keys}
    raise AssertionError(f"{name}: still something to do after {PASSES} passes")


def plain_catalogue(path: Path) -> duckdb.DuckDBPyConnection:
    """The catalogue opened by nothing but DuckDB."""
    return duckdb.connect(str(path), read_only=True)
