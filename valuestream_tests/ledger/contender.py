"""Another process at the ledger, for the tests of contention: commits rows, or dies inside a transaction.

Run as ``python -m valuestream_tests.ledger.contender PATH NAME COMMITS``; with ``die`` instead of a number it stops inside
a transaction, says ``inside``, and waits to be killed.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from valuestream_dagster.core.decision import Verdict
from valuestream_dagster.core.sequence import IntegerSequence
from valuestream_dagster.ledger.duck import DuckLedger
from valuestream_tests.builders import Book, Clock


def main(path: str, name: str, commits: str) -> None:
    """Do it."""
    ledger = DuckLedger(Path(path), now=Clock())
    if commits == "die":
        with ledger.session() as session, session.transaction():
            Book(session, name).receipt(Verdict.ACCEPTED, IntegerSequence().at(1))
            sys.stdout.write("inside\n")
            sys.stdout.flush()
            time.sleep(600)
    for number in range(int(commits)):
        with ledger.session() as session:
            seen = len(session.read.receipts(name, 1_000))
            with session.transaction():
                Book(session, name).receipt(Verdict.ACCEPTED, IntegerSequence().at(number), revision=seen + 1)
    sys.stdout.write("done\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
