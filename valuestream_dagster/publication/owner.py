"""The owner mark: a store belongs to one ledger (ruling 16). Of two over one store each would take the other's files for garbage.

The ledger bears a name of its own, and the store a small file with it, written once and only where there is none.
"""

from __future__ import annotations

import json
from datetime import datetime
from uuid import uuid4

from valuestream_dagster.errors import NotApplied, StoreFailure
from valuestream_dagster.ledger.duck import LedgerSession
from valuestream_dagster.stores.local import LocalStore

MARK = "owner.json"


def require_own(session: LedgerSession, store: LocalStore, now: datetime) -> None:
    """See that the store is this ledger's, and make it so where nobody has it yet. Costs one small read. Inside no transaction.

    Raises:
        NotApplied: it is another ledger's.
        StoreFailure: the mark cannot be read or written.
    """
    mine, marked = session.read.ledger_id(), owner_of(store)
    if mine is None and marked is None:
        mine = uuid4().hex
        with session.transaction():
            session.write.identity(mine, now)
    if mine is not None and marked is None:
        store.place(MARK, json.dumps({"ledger_id": mine, "since": now.isoformat()}).encode())
        store.sync([MARK])
        marked = owner_of(store)  # somebody may have been faster
    if mine != marked:
        raise NotApplied(
            f"the store {store.root} belongs to another ledger ({marked}, this one is {mine or 'new'}).",
            next_step="if the ledger was lost, `valuestream restore` a backup or `valuestream rebuild` it; if this is another "
            "deployment, give it a store of its own in valuestream.yaml.",
        )


def adopt(session: LedgerSession, store: LocalStore, now: datetime) -> None:
    """Let a ledger that has no name yet take the store's, because a person says that it is the one that counts."""
    marked = owner_of(store)
    if session.read.ledger_id() is None and marked is not None:
        with session.transaction():
            session.write.identity(marked, now)


def owner_of(store: LocalStore) -> str | None:
    """Which ledger the store is marked with, or None.

    Raises:
        StoreFailure: the mark is there and cannot be read.
    """
    path = store.path(MARK)
    try:
        return str(json.loads(path.read_bytes())["ledger_id"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreFailure(
            f"the owner mark {path} cannot be read: {error}", next_step="put it back from a copy of the store."
        ) from error
