"""The catalogue: what readers see of closed runs, in periods and in chains, with any DuckDB (L8, L9, L23, M16, C2, S9, S31)."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from valuestream_dagster.core.decision import Verdict
from valuestream_dagster.core.manifest import Kind
from valuestream_dagster.core.rows import Column
from valuestream_dagster.errors import LedgerFailure, StoreFailure, WrongUse
from valuestream_dagster.feeds.feed import Feed, Shape, shape_from_json, shape_json
from valuestream_dagster.ledger.duck import DuckLedger, LedgerSession
from valuestream_dagster.ledger.rows import PublishedFile
from valuestream_dagster.ledger.segments import export_segments
from valuestream_dagster.publication.catalogue import (
    CatalogueState,
    catalogue_state,
    publish_catalogue,
    record_feed_version,
)
from valuestream_tests.builders import NOON, Book, Clock, a_feed, key
from valuestream_tests.feeds.feed_texts import feed as feed_from_text
from valuestream_tests.publication.conftest import Ask

PERIODS = a_feed()
CHAIN = a_feed("chain", "{kind: integer, continuity: required, baseline: full}", "delete_when: \"op = 'D'\"\n")
COLUMNS = {"id": "BIGINT", "amount": "DECIMAL(18,2)", "op": "VARCHAR"}

Row = tuple[int, str, str]


class Shelf:
    """A ledger, a store and a catalogue; files are written as the publication writes them.

    Args:
        root: where they lie.
        session: the ledger, open.
        feed: whose files they are.
    """

    def __init__(self, root: Path, session: LedgerSession, feed: Feed = PERIODS) -> None:
        self.root, self.session, self.feed = root, session, feed
        self.store, self.segments, self.path = root / "store", root / "segments", root / "catalog.duckdb"
        self.book = Book(session, feed.name)
        self.declare(feed)

    def declare(self, feed: Feed) -> None:
        with self.session.transaction():
            record_feed_version(self.session, feed, NOON)

    def write(
        self, number: int, revision: int, rows: Sequence[Row], kind: Kind, columns: dict[str, str]
    ) -> PublishedFile:
        """One Parquet file: the declared columns, then key, kind, place, operation and source file of each row."""
        name = f"published/{self.feed.name}/{number}-{kind}-r{revision}-{self.book.count}.parquet"
        target = self.store / name
        target.parent.mkdir(parents=True, exist_ok=True)
        values = ", ".join(
            f"({', '.join(repr(value) for value in row)}, '{number}', '{kind}', {number}, '{row[-1]}', 'a.csv')"
            for row in rows
        )
        typed = [*columns.items(), ("_key", "VARCHAR"), ("_kind", "VARCHAR"), ("_seq", "BIGINT"), ("_op", "VARCHAR"),
                 ("_file", "VARCHAR")]  # fmt: skip
        casts = ", ".join(f"CAST(v.c{place} AS {kind_}) AS {name_}" for place, (name_, kind_) in enumerate(typed))
        source = f"(VALUES {values})" if rows else f"(SELECT {', '.join(['NULL'] * len(typed))} WHERE false)"
        aliases = ", ".join(f"c{place}" for place in range(len(typed)))
        with duckdb.connect() as writer:
            writer.execute(f"COPY (SELECT {casts} FROM {source} v({aliases})) TO '{target}' (FORMAT parquet)")
        data = target.read_bytes()
        return PublishedFile(name, hashlib.sha256(data).hexdigest(), len(data), len(rows))

    def put(
        self,
        number: int,
        rows: Sequence[Row],
        revision: int = 1,
        *,
        kind: Kind = Kind.FULL,
        run_id: str | None = None,
        columns: dict[str, str] | None = None,
    ) -> str:
        """Record a publication with one file; in a closed run of its own where none is named."""
        made = self.write(number, revision, rows, kind, columns or COLUMNS)
        return self.book.publish(key(self.feed, number), revision, f"{rows}", kind=kind, run_id=run_id, files=[made])

    def publish(self, store: Path | None = None) -> int:
        return publish_catalogue(
            self.session, path=self.path, store=store or self.store, segments=self.segments, now=Clock()
        )

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        """What a reader sees who attaches the catalogue under a name of his own."""
        with duckdb.connect() as reader:
            quoted = str(self.path).replace("'", "''")
            reader.execute(f"ATTACH '{quoted}' AS somewhere (READ_ONLY)")
            reader.execute("USE somewhere")
            return reader.execute(sql).fetchall()

    def rows(
        self, sql: str = "SELECT id, CAST(amount AS VARCHAR) FROM acme.orders ORDER BY ALL"
    ) -> list[tuple[Any, ...]]:
        self.publish()
        return self.ask(sql)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[LedgerSession]:
    with DuckLedger(tmp_path / "ledger.duckdb", now=Clock()).session() as opened:
        yield opened


@pytest.fixture
def shelf(tmp_path: Path, session: LedgerSession) -> Shelf:
    return Shelf(tmp_path, session)


@pytest.fixture
def chain(tmp_path: Path, session: LedgerSession) -> Shelf:
    return Shelf(tmp_path, session, CHAIN)


# --- visibility ------------------------------------------------------------------------------------------------------


def test_readers_see_the_newest_revision_of_every_key_and_no_other(shelf: Shelf) -> None:
    """M16, L23"""
    shelf.put(1, [(1, "1.00", "U")])
    shelf.put(2, [(2, "2.00", "U")])
    shelf.put(1, [(1, "9.00", "U")], revision=2)
    assert shelf.rows() == [(1, "9.00"), (2, "2.00")]


def test_nothing_of_an_open_run_is_visible_and_all_of_it_appears_at_once_when_it_closes(shelf: Shelf) -> None:
    """L8, L9, S9"""
    shelf.put(1, [(1, "1.00", "U")])
    shelf.book.begin("run")
    shelf.put(1, [(1, "9.00", "U")], revision=2, run_id="run")
    shelf.put(2, [(2, "2.00", "U")], run_id="run")
    assert shelf.rows() == [(1, "1.00")]
    assert shelf.ask("SELECT key, revision, visible FROM valuestream.publications ORDER BY ALL") == [
        ("1", 1, True), ("1", 2, False), ("2", 1, False),
    ]  # fmt: skip
    shelf.book.end("run", "partial")
    assert shelf.ask("SELECT count(*) FROM acme.orders") == [(1,)], "not before the catalogue is renamed"
    assert shelf.rows() == [(1, "9.00"), (2, "2.00")]


def test_an_empty_revision_that_replaces_a_full_one_leaves_the_period_empty(shelf: Shelf) -> None:
    """L23, S31"""
    shelf.put(1, [(1, "1.00", "U")])
    shelf.put(1, [], revision=2)
    assert shelf.rows() == []


def test_a_feed_without_deliveries_has_views_with_the_declared_columns(shelf: Shelf) -> None:
    assert shelf.rows("DESCRIBE acme.orders") == [
        (name, kind, "YES", None, None, None) for name, kind in COLUMNS.items()
    ]
    assert [row[0] for row in shelf.ask("DESCRIBE acme.orders__all")] == [*COLUMNS, "_key", "_kind", "_revision", "_op"]


def test_a_voided_publication_is_not_visible_and_what_it_replaced_is(shelf: Shelf) -> None:
    """L15, L18"""
    shelf.put(1, [(1, "1.00", "U")])
    damaged = shelf.put(1, [(1, "9.00", "U")], revision=2)
    with shelf.session.transaction():
        shelf.session.write.voided(damaged, "gone", NOON)
    assert shelf.rows() == [(1, "1.00")]


def test_the_view_shows_declared_columns_only_and_the_other_one_tells_where_each_row_is_from(shelf: Shelf) -> None:
    """C17, SURFACE "Catalogue" """
    shelf.put(1, [(1, "1.00", "U")])
    shelf.put(2, [(2, "2.00", "D")], revision=4)
    assert [row[0] for row in shelf.rows("DESCRIBE acme.orders")] == list(COLUMNS)
    assert shelf.ask("SELECT id, _key, _kind, _revision, _op FROM acme.orders__all ORDER BY id") == [
        (1, "1", "full", 1, "U"), (2, "2", "full", 4, "D"),
    ]  # fmt: skip


def test_a_revision_that_reuses_the_files_of_the_one_before_shows_them_under_its_own_number(shelf: Shelf) -> None:
    """ruling 2"""
    made = shelf.write(1, 1, [(1, "1.00", "U")], Kind.FULL, COLUMNS)
    for revision in (1, 2):
        shelf.book.publish(key(PERIODS, 1), revision, "X", files=[made])
    assert shelf.rows("SELECT id, _revision FROM acme.orders__all") == [(1, 2)]


def test_a_reader_who_stays_attached_keeps_his_picture(shelf: Shelf) -> None:
    """S9"""
    shelf.put(1, [(1, "1.00", "U")])
    shelf.publish()
    with duckdb.connect() as reader:
        reader.execute(f"ATTACH '{shelf.path}' AS c (READ_ONLY)")
        shelf.put(1, [(1, "9.00", "U")], revision=2)
        shelf.publish()
        assert reader.execute("SELECT CAST(amount AS VARCHAR) FROM c.acme.orders").fetchall() == [("1.00",)]
    assert shelf.ask("SELECT CAST(amount AS VARCHAR) FROM acme.orders") == [("9.00",)]


# --- the shape -------------------------------------------------------------------------------------------------------


def test_files_are_cast_to_the_columns_that_are_declared_now(shelf: Shelf) -> None:
    """ruling 12: stale slices stay visible"""
    shelf.put(1, [(1, "1.00", "U")], columns={"id": "INTEGER", "amount": "VARCHAR", "op": "VARCHAR"})
    shelf.put(2, [(2, "2.00", "U")])
    assert [row[1] for row in shelf.rows("DESCRIBE acme.orders")] == list(COLUMNS.values())
    assert shelf.rows() == [(1, "1.00"), (2, "2.00")]


def test_a_column_that_only_newer_files_have_is_null_in_older_rows(shelf: Shelf) -> None:
    """ruling 12; FACTS, DuckDB 8"""
    shelf.put(1, [(1, "1.00", "U")], columns={"id": "BIGINT", "amount": "DECIMAL(18,2)", "other": "VARCHAR"})
    shelf.put(2, [(2, "2.00", "U")])
    assert shelf.rows("SELECT id, op FROM acme.orders ORDER BY id") == [(1, None), (2, "U")]


def test_a_column_that_no_file_has_yet_is_null(shelf: Shelf) -> None:
    """ruling 12: a feed file gains a column; nothing was recomputed or delivered since, and readers go on"""
    shelf.put(1, [(1, "1.00", "U")], columns={"id": "BIGINT", "amount": "DECIMAL(18,2)", "other": "VARCHAR"})
    assert shelf.rows("SELECT id, op FROM acme.orders") == [(1, None)]


def test_views_are_those_of_the_newest_declaration_and_stay_when_the_feeds_file_has_gone(shelf: Shelf) -> None:
    """L26"""
    shelf.put(1, [(1, "1.00", "U")])
    text = "source: acme\ndataset: orders\nlanding: in\ncolumns: {amount: VARCHAR}\n"
    shelf.declare(feed_from_text(text))
    assert shelf.rows("SELECT * FROM acme.orders") == [("1.00",)]
    assert shelf.ask("SELECT feed, mode FROM valuestream.feeds") == [("acme/orders", "periods")]


def test_names_that_need_quotes_are_quoted(tmp_path: Path, session: LedgerSession) -> None:
    odd = feed_from_text('source: a-b\ndataset: select\nlanding: in\ncolumns: {"order": BIGINT, "a b": VARCHAR}\n')
    shelf = Shelf(tmp_path / "it's here", session, odd)
    assert shelf.rows('SELECT "order", "a b" FROM "a-b"."select"') == []


@pytest.mark.parametrize(
    "source",
    ["main", "somewhere", "catalog", "published", "catalogue", "ledger"],
)
def test_a_source_may_bear_the_name_of_a_database_that_is_attached_meanwhile(
    tmp_path: Path, session: LedgerSession, source: str
) -> None:
    """No declared name may stop the catalogue of all feeds, or make its view in the ledger."""
    feed = feed_from_text(
        f"source: {source}\ndataset: orders\nlanding: in\nsequence: {{kind: integer}}\ncolumns: {{id: BIGINT, op: VARCHAR}}\n"
    )
    shelf = Shelf(tmp_path, session, feed)
    before = session.connection.execute("SELECT count(*) FROM duckdb_views() WHERE NOT internal").fetchall()
    shelf.put(1, [(1, "U")], columns={"id": "BIGINT", "op": "VARCHAR"})  # type: ignore[list-item]
    shelf.publish()
    with duckdb.connect() as reader:
        reader.execute(f"ATTACH '{shelf.path}' AS c (READ_ONLY)")
        assert reader.execute(f'SELECT id FROM c."{source}".orders').fetchall() == [(1,)]
        assert reader.execute(f'SELECT id, _revision FROM c."{source}".orders__all').fetchall() == [(1, 1)]
    assert session.connection.execute("SELECT count(*) FROM duckdb_views() WHERE NOT internal").fetchall() == before


# --- chains ----------------------------------------------------------------------------------------------------------


def test_the_current_state_is_the_full_and_the_later_deltas_in_order(chain: Shelf) -> None:
    """C2, ruling 8: change, insert, delete, and back again"""
    chain.put(1, [(1, "1.00", "U"), (2, "2.00", "U"), (3, "3.00", "U")])
    chain.put(2, [(1, "1.50", "U"), (2, "2.00", "D"), (4, "4.00", "U")], kind=Kind.DELTA)
    assert chain.rows() == [(1, "1.50"), (3, "3.00"), (4, "4.00")]
    chain.put(3, [(2, "2.75", "U"), (4, "4.00", "D")], kind=Kind.DELTA)
    assert chain.rows() == [(1, "1.50"), (2, "2.75"), (3, "3.00")]


def test_within_one_delta_deletes_come_before_upserts(chain: Shelf) -> None:
    """ruling 8"""
    chain.put(1, [(1, "1.00", "U")])
    chain.put(2, [(1, "5.00", "U"), (1, "0.00", "D")], kind=Kind.DELTA)
    assert chain.rows() == [(1, "5.00")]


def test_a_correction_of_an_earlier_delta_changes_only_what_no_later_one_says(chain: Shelf) -> None:
    """ruling 7: later links keep their publications, the state is computed over all in order"""
    chain.put(1, [(1, "1.00", "U"), (2, "2.00", "U")])
    chain.put(2, [(1, "1.20", "U"), (2, "2.20", "U")], kind=Kind.DELTA)
    chain.put(3, [(1, "1.30", "U")], kind=Kind.DELTA)
    chain.put(2, [(1, "9.99", "U"), (3, "3.33", "U")], revision=2, kind=Kind.DELTA)
    assert chain.rows() == [(1, "1.30"), (2, "2.00"), (3, "3.33")]


def test_a_new_full_takes_the_place_of_the_old_chain_and_includes_the_delta_of_its_key(chain: Shelf) -> None:
    """C14, ruling 9"""
    chain.put(1, [(1, "1.00", "U"), (2, "2.00", "U")])
    chain.put(2, [(1, "1.20", "U")], kind=Kind.DELTA)
    chain.put(3, [(2, "2.30", "U")], kind=Kind.DELTA)
    chain.put(3, [(7, "7.00", "U")])
    chain.put(4, [(8, "8.00", "U")], kind=Kind.DELTA)
    assert chain.rows() == [(7, "7.00"), (8, "8.00")]
    kinds = chain.ask("SELECT DISTINCT _key, _kind FROM acme.orders__all ORDER BY ALL")
    assert kinds == [("1", "full"), ("2", "delta"), ("3", "delta"), ("3", "full"), ("4", "delta")]


def test_a_revised_full_takes_the_place_of_the_one_before_below_the_same_deltas(chain: Shelf) -> None:
    """ruling 9"""
    chain.put(1, [(1, "1.00", "U"), (2, "2.00", "U")])
    chain.put(2, [(1, "1.20", "U")], kind=Kind.DELTA)
    chain.put(1, [(1, "0.10", "U"), (3, "0.30", "U")], revision=2)
    assert chain.rows() == [(1, "1.20"), (3, "0.30")]


def test_a_chain_without_a_full_is_its_deltas(chain: Shelf) -> None:
    """S26: continuity not required"""
    chain.put(2, [(1, "1.00", "U"), (2, "2.00", "U")], kind=Kind.DELTA)
    chain.put(3, [(1, "1.00", "D")], kind=Kind.DELTA)
    assert chain.rows() == [(2, "2.00")]


def test_a_chain_without_deliveries_and_one_of_a_full_alone_can_be_read(chain: Shelf) -> None:
    assert chain.rows() == []
    chain.put(1, [(1, "1.00", "U"), (2, "2.00", "D")])
    assert chain.rows() == [(1, "1.00")]


def test_an_empty_full_empties_the_dataset(chain: Shelf) -> None:
    """S31"""
    chain.put(1, [(1, "1.00", "U")])
    chain.put(2, [])
    assert chain.rows() == []


_STEPS = st.lists(
    st.tuples(
        st.integers(1, 6),
        st.sampled_from([Kind.FULL, Kind.DELTA, Kind.DELTA]),
        st.dictionaries(st.integers(1, 4), st.sampled_from("UUD"), max_size=4),
    ),
    max_size=7,
)


@settings(max_examples=12)
@given(_STEPS)
def test_the_current_state_of_any_chain_is_that_of_a_dictionary_updated_in_order(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, Kind, dict[int, str]]]
) -> None:
    """C2, ruling 8: against a plain model; repeats of a key are revisions"""
    root = tmp_path_factory.mktemp("chain")
    newest: dict[tuple[int, Kind], list[Row]] = {}
    with DuckLedger(root / "ledger.duckdb", now=Clock()).session() as session:
        shelf = Shelf(root, session, CHAIN)
        for count, (number, kind, changes) in enumerate(steps, start=1):
            ops = {key_: "U" if kind is Kind.FULL else op for key_, op in changes.items()}
            rows: list[Row] = [(key_, f"{count}.00", op) for key_, op in ops.items()]
            shelf.put(number, rows, revision=count, kind=kind)
            newest[number, kind] = rows
        found = shelf.rows()
    base = max((number for number, kind in newest if kind is Kind.FULL), default=0)
    state: dict[int, str] = {}
    for (number, kind), rows in sorted(newest.items(), key=lambda one: (one[0][0], one[0][1] is Kind.DELTA)):
        if (kind is Kind.FULL and number == base) or (kind is Kind.DELTA and number > base):
            for key_, amount, op in rows:
                state.pop(key_, None)
                if op == "U":
                    state[key_] = amount
    assert found == sorted(state.items())


# --- the file --------------------------------------------------------------------------------------------------------


def test_the_file_can_be_read_by_all_and_written_by_none(shelf: Shelf) -> None:
    """decision 0003: who opens it for writing would block the others"""
    for _ in range(2):
        shelf.publish()
        assert stat.S_IMODE(shelf.path.stat().st_mode) == 0o444
        assert [path.name for path in shelf.root.glob("catalog*")] == ["catalog.duckdb"]


def test_a_stray_log_of_a_killed_reader_is_removed(shelf: Shelf) -> None:
    """FACTS, DuckDB 13"""
    shelf.publish()
    stray = shelf.path.with_name("catalog.duckdb.wal")
    stray.write_bytes(b"a reader died here")
    assert shelf.rows() == []
    assert not stray.exists()


def test_it_is_stored_in_the_form_that_older_readers_open(shelf: Shelf) -> None:
    """decision 0003"""
    shelf.publish()
    with duckdb.connect() as reader:
        reader.execute(f"ATTACH '{shelf.path}' AS c (READ_ONLY)")
        tags = reader.execute("SELECT tags FROM duckdb_databases() WHERE database_name = 'c'").fetchall()[0][0]
    assert tags["storage_version"].startswith("v1.0.0")


@pytest.mark.slow
def test_older_duckdb_releases_read_all_of_it(chain: Shelf, older_reader: Ask) -> None:
    """decision 0003: data, history from segments, and every public view"""
    chain.put(1, [(1, "1.00", "U"), (2, "2.00", "U")])
    chain.put(2, [(2, "2.00", "D"), (3, "3.00", "U")], kind=Kind.DELTA)
    export_segments(chain.session, chain.segments, Clock(), 1)
    chain.put(3, [(1, "1.30", "U")], kind=Kind.DELTA)
    chain.publish()
    views = [f"valuestream.{row[0]}" for row in chain.ask(
        "SELECT view_name FROM duckdb_views() WHERE schema_name = 'valuestream' AND view_name NOT LIKE '\\_%' ESCAPE '\\'"
    )]  # fmt: skip
    assert len(views) == 11
    questions = [
        "SELECT id, CAST(amount AS VARCHAR) FROM acme.orders ORDER BY id",
        "SELECT count(*), count(DISTINCT _key) FROM acme.orders__all",
        "SELECT key, verdict FROM valuestream.receipts",
        *(f"SELECT count(*) FROM (SELECT * FROM {view})" for view in views),
    ]
    rows, everything, receipts, *_ = older_reader(chain.path, questions)
    assert rows == [[1, "1.30"], [3, "3.00"]]
    assert everything == [[5, 3]]
    assert receipts == [["1", "accepted"], ["2", "accepted"], ["3", "accepted"]]


def test_a_store_that_was_moved_is_found_again_when_the_catalogue_is_published_anew(
    shelf: Shelf, tmp_path: Path
) -> None:
    """decision 0003: absolute paths, rebuilt"""
    shelf.put(1, [(1, "1.00", "U")])
    shelf.publish()
    moved = tmp_path / "elsewhere" / "store"
    moved.parent.mkdir()
    shelf.store.rename(moved)
    with pytest.raises(duckdb.IOException):
        shelf.ask("FROM acme.orders")
    state = catalogue_state(shelf.path)
    assert state is not None
    assert state.store == shelf.store != moved, "any command notices it"
    shelf.publish(moved)
    assert shelf.ask("SELECT id FROM acme.orders") == [(1,)]
    assert shelf.ask("SELECT path FROM valuestream.files")[0][0].startswith(str(moved))
    assert catalogue_state(shelf.path) == CatalogueState(state.generation, moved, {})


def test_the_generation_is_the_ledgers_and_only_grows(shelf: Shelf) -> None:
    """decision 0003"""
    seen = [shelf.publish()]
    for number in (1, 2):
        shelf.put(number, [])
        seen.append(shelf.publish())
    assert seen == sorted(set(seen))
    assert catalogue_state(shelf.path) == CatalogueState(seen[-1], shelf.store, {})


@pytest.mark.parametrize("content", [None, b"", b"no database", b"\x00" * 20_000])
def test_what_is_no_catalogue_has_no_state_and_is_replaced(shelf: Shelf, content: bytes | None) -> None:
    if content is not None:
        shelf.path.write_bytes(content)
    assert catalogue_state(shelf.path) is None
    shelf.publish()
    assert catalogue_state(shelf.path) is not None


def test_a_catalogue_that_cannot_be_written_is_a_store_failure_and_the_ledger_goes_on(
    shelf: Shelf, tmp_path: Path
) -> None:
    """Exit 1 with a next step; nothing half stays behind."""
    shelf.path.mkdir()
    with pytest.raises(StoreFailure, match=r"could not be written.*Next: free space"):
        shelf.publish()
    assert list(tmp_path.glob("*.tmp*")) == []
    assert shelf.session.read.receipts(None, 1) == ()
    shelf.path.rmdir()
    assert shelf.rows() == []


def _shape(feed: Feed) -> Shape:
    return shape_from_json(shape_json(feed))


@pytest.mark.parametrize(
    ("declared", "shown"),
    [
        ({"amount": "DECIMAL(18,1)"}, "`amount` was published as DECIMAL"),
        ({"id": "INTEGER"}, "`id` was published as BIGINT, which INTEGER cannot show without loss"),
        ({"amount": None, "amt": "DECIMAL(18,2)"}, "`amount` was published and `amt` is declared instead"),
        ({"amount": "DECIMAL(20,2)"}, None),
        ({"amount": "VARCHAR", "new": "DATE"}, None),
        ({"amount": None}, None),
    ],
)
def test_an_edit_of_columns_never_rounds_or_hides_what_is_published(
    shelf: Shelf, declared: dict[str, str | None], shown: str | None
) -> None:
    """L5, ruling 12: until it is made again, readers go on with the columns that they had"""
    shelf.declare(replace(PERIODS, computation_hash="hash"))  # what the publications below were made by
    shelf.put(1, [(1, "4.06", "U")])
    columns = {column.name: column.type for column in PERIODS.contract.columns} | declared
    edited = replace(PERIODS.contract, columns=tuple(Column(n, t) for n, t in columns.items() if t is not None))
    shelf.declare(replace(PERIODS, contract=edited, computation_hash="edited"))
    shelf.publish()
    assert shelf.ask("SELECT id FROM acme.orders") == [(1,)]
    if shown is not None:
        hidden = _shape(replace(PERIODS, contract=edited)).hides_of(_shape(PERIODS))
        assert hidden is not None and shown in hidden
        assert shelf.ask("SELECT id, amount::VARCHAR FROM acme.orders__all") == [(1, "4.06")]


def test_the_mode_of_a_feed_that_has_published_cannot_be_changed(shelf: Shelf) -> None:
    """Readers would lose every period but the newest full"""
    shelf.put(1, [(1, "4.06", "U")])
    with pytest.raises(WrongUse, match="has published as `mode: periods`"):
        shelf.declare(CHAIN)


def test_a_ledger_that_knows_less_than_readers_see_publishes_nothing(shelf: Shelf, tmp_path: Path) -> None:
    """L18: a lost ledger must not empty the catalogue"""
    shelf.put(1, [(1, "1.00", "U")])
    shelf.publish()
    with DuckLedger(tmp_path / "fresh.duckdb", now=Clock()).session() as fresh:
        lost = Shelf(tmp_path, fresh)
        with pytest.raises(LedgerFailure, match=r"the ledger was lost.*Next: put the newest backup back"):
            lost.publish()
    assert shelf.ask("SELECT id FROM acme.orders") == [(1,)]


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"no parquet")], ids=["lost", "damaged"])
def test_a_lost_file_withholds_its_own_feed_alone_and_is_shown_again_when_it_is_back(
    shelf: Shelf, damage: Callable[[Path], object]
) -> None:
    other = Shelf(shelf.root, shelf.session, replace(PERIODS, dataset="others"))
    other.put(1, [(7, "7.00", "U")])
    shelf.put(1, [(1, "1.00", "U")])
    shelf.put(2, [(2, "2.00", "U")])
    (file,) = (shelf.store / "published" / "acme" / "orders").glob("2-*.parquet")
    kept = file.read_bytes()
    damage(file)
    shelf.publish()
    for view in ("orders", "orders__all"):
        with pytest.raises(duckdb.Error, match="acme/orders: a published file cannot be read"):
            shelf.ask(f"SELECT * FROM acme.{view}")
    assert shelf.ask("SELECT id FROM acme.others") == [(7,)]
    state = catalogue_state(shelf.path)
    assert state is not None
    assert list(state.withheld) == ["acme/orders"]
    assert not state.shows_all(state.generation, state.store), "so that the next command builds it again"
    file.write_bytes(kept)
    shelf.publish()
    assert shelf.ask("SELECT id FROM acme.orders ORDER BY id") == [(1,), (2,)]
    assert catalogue_state(shelf.path) == CatalogueState(state.generation, state.store, {})


def test_publishing_leaves_the_ledger_as_its_sessions_home(shelf: Shelf) -> None:
    """What follows in the same session is written to the ledger."""
    shelf.publish()
    shelf.put(1, [(1, "1.00", "U")])
    assert shelf.rows() == [(1, "1.00")]


# --- history ---------------------------------------------------------------------------------------------------------


def test_history_is_complete_and_in_order_across_segments_and_tail(shelf: Shelf) -> None:
    """ruling 15"""
    for number in range(1, 24):
        with shelf.session.transaction():
            shelf.book.receipt(Verdict.ACCEPTED, key(PERIODS, number))
        if number % 3 == 0:
            export_segments(shelf.session, shelf.segments, Clock(), 5)
    assert len(list((shelf.segments / "receipts").iterdir())) == 3
    assert shelf.rows("SELECT CAST(key AS INTEGER) FROM valuestream.receipts") == [(n,) for n in range(1, 24)]
    assert shelf.ask("SELECT count(*) FROM valuestream._tail_receipts") == [(5,)]


def test_every_public_view_has_the_columns_that_the_surface_promises(shelf: Shelf) -> None:
    """SURFACE "Catalogue" """
    promised = {
        "feeds": "feed source dataset mode config_hash",
        "receipts": "received_at feed kind key revision digest verdict code detail warnings run_id manifest",
        "slices": "feed epoch kind key ordinal requires state run_id",
        "epochs": "feed epoch baseline_key anchor opened_at",
        "publications": "publication_id feed kind key revision digest computation_hash run_id rows published_at visible",
        "files": "publication_id path sha256 bytes rows",
        "lineage": "publication_id object_uri object_version sha256 bytes",
        "runs": "run_id feed status started_at ended_at computation_hash",
        "rulings": "feed key ruling by why ruled_at",
        "attempts": "feed key revision destination attempt state code retry effect locator digest",
    }
    shelf.publish()
    for view, columns in promised.items():
        found = [row[0] for row in shelf.ask(f"DESCRIBE valuestream.{view}")]
        assert found[: len(columns.split())] == columns.split(), view


def test_runs_and_files_are_told_as_they_are(shelf: Shelf) -> None:
    """C17, L11"""
    shelf.put(1, [(1, "1.00", "U")])
    shelf.book.begin("open")
    assert [row[0] for row in shelf.rows("SELECT status FROM valuestream.runs ORDER BY fence")] == ["ok", "running"]
    path, sha256, rows = shelf.ask("SELECT path, sha256, rows FROM valuestream.files")[0]
    assert hashlib.sha256(Path(path).read_bytes()).hexdigest() == sha256
    assert rows == 1
    assert shelf.ask("SELECT object_uri, object_version FROM valuestream.lineage") == [("file:///in/a.csv", "v1")]
