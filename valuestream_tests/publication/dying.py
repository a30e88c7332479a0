"""A process that applies a feed and dies, as by a power cut, at a named step: for tests of what is left of it.

The steps are announced by parts put around the publisher's own (ledger, catalogue), and by the functions that it calls.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from typing import Any, cast

from valuestream_dagster.ledger.duck import DuckLedger, LedgerSession
from valuestream_dagster.publication import catalogue, take_in
from valuestream_dagster.publication.publish import Publisher
from valuestream_dagster.publication.recompute import recompute
from valuestream_dagster.publication.vacuum import vacuum
from valuestream_dagster.stores.local import LocalStore
from valuestream_tests.world import World, apply

DIED = 9
_server = get_context("forkserver")
_server.set_forkserver_preload(["valuestream_tests.publication.dying"])


class _Countdown:
    """Ends the process at the n-th announcement of a step (of any step, where it is ``*``)."""

    step = "never"
    left = 0

    def __call__(self, step: str) -> None:
        if self.step in {step, "*"}:
            self.left -= 1
            if self.left == 0:
                os._exit(DIED)


_die = _Countdown()


class _Announcing:
    """A writer that says what it has written."""

    def __init__(self, writer: object) -> None:
        self._writer = writer

    def __getattr__(self, name: str) -> Callable[..., None]:
        def write(*args: Any, **others: Any) -> None:
            getattr(self._writer, name)(*args, **others)
            _die(f"write {name}")

        return write


class _DyingSession(LedgerSession):
    def __init__(self, session: LedgerSession) -> None:
        super().__init__(session.connection)
        self.write = cast("Any", _Announcing(self.write))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with super().transaction():
            yield
            _die("before commit")
        _die("committed")


class _DyingLedger(DuckLedger):
    @contextmanager
    def session(self) -> Iterator[LedgerSession]:
        with super().session() as session:
            yield _DyingSession(session)


class _DyingPublisher(Publisher):
    def publish_catalogue(self, session: LedgerSession) -> int:
        _die("before catalogue")
        generation = super().publish_catalogue(session)
        _die("after catalogue")
        return generation


def _dying(publisher: Publisher) -> Publisher:
    parts = {part.name: getattr(publisher, part.name) for part in fields(publisher)}
    return _DyingPublisher(**{**parts, "ledger": _DyingLedger(publisher.ledger.path, now=publisher.now)})


def _announced(function: Callable[..., Any], step: str) -> Callable[..., Any]:
    def call(*args: Any, **others: Any) -> Any:
        answer = function(*args, **others)
        _die(step)
        return answer

    return call


def _apply(world: World) -> None:
    apply(world.opened, around=_dying)


def _settle(world: World) -> None:
    """Nothing but settling what is left."""
    opened = world.opened
    _dying(opened.publisher(opened.feed("acme/orders"))).settle()


def _recompute(world: World) -> None:
    opened = world.opened
    recompute(_dying(opened.publisher(opened.feed("acme/orders"))))


def _vacuum(world: World) -> None:
    opened = world.opened
    ledger = _DyingLedger(opened.ledger.path, now=opened.now)
    vacuum(ledger, opened.store, opened.settings, opened.now(), carry_out=True)


_DOING = {"apply": _apply, "settle": _settle, "recompute": _recompute, "vacuum": _vacuum}


def _do_and_die(world: World, doing: str, step: str, count: int) -> None:
    """In the child."""
    _die.step, _die.left = step, count
    for place, name, announced in (
        (take_in, "seal", "sealed"),
        (take_in, "stage", "staged"),
        (take_in, "publish_file", "linked"),
        (take_in, "read_back", "read back"),
        (catalogue, "_build", "catalogue built"),
        (LocalStore, "delete", "deleted"),
    ):
        setattr(place, name, _announced(getattr(place, name), announced))
    _DOING[doing](world)


def applying(world: World) -> BaseProcess:
    """A process that has begun to apply, to be killed."""
    process = _server.Process(target=_do_and_die, args=(world, "apply", "never", 0))
    process.start()
    return process


def die_at(world: World, step: str, count: int = 1, *, doing: str = "apply") -> bool:
    """Apply (or settle, recompute, vacuum) in a process that dies the n-th time it has come to a step; whether it came so far."""
    process = _server.Process(target=_do_and_die, args=(world, doing, step, count))
    process.start()
    process.join()
    assert process.exitcode in {0, DIED}, process.exitcode
    return process.exitcode == DIED
