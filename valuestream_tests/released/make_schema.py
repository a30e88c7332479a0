"""Makes ``schema-N.tar.gz``: a deployment as the program of this commit leaves it. Run once, by the last commit of a schema.

    python -m valuestream_tests.released.make_schema FOLDER

FOLDER must not exist. The story: a chain with a corrected link, a conflict, a rejected and a waiting delivery, and a feed of
periods with an applied correction. Nothing of this machine is in it: the holder's name is fixed, addresses are below FOLDER.
"""

from __future__ import annotations

import json
import socket
import sys
import tarfile
from pathlib import Path

from valuestream_dagster.ledger.duck import SCHEMA_VERSION
from valuestream_tests.world import CHAIN, PERIODS, World, another

FEEDS = {"orders.yaml": CHAIN, "prices.yaml": another(PERIODS, "prices")}


def main() -> None:
    """Make the archive and, beside it, the answers that the same program gives of it."""
    socket.gethostname = lambda: "released"
    root = Path(sys.argv[1])
    world = World(root, FEEDS)
    orders, prices = world.producer(), world.producer("prices")
    orders.deliver(1, [(1, "1.00", "U"), (2, "2.00", "U")], kind="full")
    orders.deliver(2, [(2, "2.50", "U")])
    orders.deliver(3, [(1, "0.00", "D"), (3, "3.00", "U")])
    world.apply()
    orders.deliver(2, [(2, "2.75", "U")], revision=2)
    world.apply()
    orders.deliver(4, [(4, "4.00", "U")])
    world.apply()
    orders.deliver(4, [(4, "4.04", "U")], name="again")
    world.apply()
    prices.deliver(1, [(1, "1.00", "U")])
    prices.deliver(1, [(1, "1.10", "U")], revision=2)
    prices.deliver(2, [(2, "2.00", "U")])
    broken = prices.make(3, [(3, "3.00", "U")])
    prices.hand_over(broken.with_file(b"id,amount,op\n3,3.01,U\n"))
    prices.hand_over(prices.make(5, [(5, "5.00", "U")]).without_file())
    world.apply("acme/prices")
    answers = {name: {"rows": world.rows(name), "verdicts": world.verdicts(name)} for name in ("acme/orders", "acme/prices")}
    here = Path(__file__).parent
    (here / f"schema-{SCHEMA_VERSION}.json").write_text(json.dumps(answers, indent=1) + "\n")
    with tarfile.open(here / f"schema-{SCHEMA_VERSION}.tar.gz", "w:gz") as archive:
        for part in ("valuestream.yaml", "feeds", "landing", "state"):
            archive.add(root / part, part, filter=_anonymous)


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


if __name__ == "__main__":
    main()
