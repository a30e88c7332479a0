"""Red runs: every one says in words why and what to do next, wherever in it the trouble arose."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dagster as dg

from valuestream_dagster.errors import ValueStreamError


@contextmanager
def told_as_failure() -> Iterator[None]:
    """Let our own errors end a step as what they say; Dagster would wrap them, and show a trace."""
    try:
        yield
    except ValueStreamError as error:
        raise refusal(error.message, error.next_step, code=error.kind, retry=error.retryable) from error


def refusal(
    detail: str, next_step: str, *, code: str, retry: bool = False, more: dict[str, Any] | None = None
) -> dg.Failure:
    """A red run that says why and what to do. Never retried by Dagster unless the surroundings failed."""
    return dg.Failure(
        description=f"{detail} Next: {next_step}" if next_step else detail,
        allow_retries=retry,
        metadata={"reason": code, "detail": detail, "next_step": next_step or "nothing to do", **(more or {})},
    )


def why_failed(event: dg.DagsterEvent) -> str:
    """Why a step failed, as a sentence: the refusal's own, else the innermost error without its trace."""
    failure = event.step_failure_data
    if failure.user_failure_data is not None and failure.user_failure_data.description:
        return failure.user_failure_data.description
    error = failure.error
    while error is not None and error.cause is not None:
        error = error.cause
    return f"internal error: {error.message.strip()}" if error else "internal error"
