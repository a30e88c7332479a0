"""``explain`` and ``rule`` by the command line: a conflict is told, ruled on with the command that was printed, and gone."""

from __future__ import annotations

import shlex

import dagster as dg
import pytest

from valuestream_dagster.deployment import open_deployment
from valuestream_dagster.orchestration.home import instance_of
from valuestream_tests.cli.shop import Shop

pytestmark = pytest.mark.slow


@pytest.fixture
def conflicting(shop: Shop) -> Shop:
    shop.deliver("2026-09-01", "1,2.50\n2,3.00\n")
    assert shop.run("apply").exit_code == 0
    for path in shop.landing.iterdir():
        path.unlink()
    shop.deliver("2026-09-01", "1,2.50\n2,3.50\n")
    assert shop.run("apply").exit_code == 1
    return shop


def test_a_conflict_is_told_with_both_contents_and_settled_by_the_printed_command(conflicting: Shop) -> None:
    """Ruling 4, by a person: explain, copy the line, apply."""
    told = conflicting.run("explain", "acme/orders", "2026-09-01")
    assert told.exit_code == 1, told.output
    assert "arrived with different contents" in told.stdout and "0 rows are added, 0 removed, 1 changed" in told.stdout
    assert "- id=2, amount=3.00" in told.stdout and "+ id=2, amount=3.50" in told.stdout
    assert "| To acme:" in told.stdout
    (line,) = [line for line in told.stdout.splitlines() if " release " in line]
    words = shlex.split(line.partition("valuestream ")[2])
    ruled = conflicting.run(*words)
    assert ruled.exit_code == 0, ruled.output
    assert "run `valuestream apply acme/orders`" in ruled.stdout

    applied = conflicting.run("apply")
    assert applied.exit_code == 0 and "1 applied" in applied.stdout and "known already" not in applied.stdout
    assert conflicting.json("query", "SELECT sum(amount) FROM acme.orders")["rows"] == [["6.00"]]
    after = conflicting.run("explain", "acme/orders", "2026-09-01")
    assert after.exit_code == 0 and "ruled by YOU (as claimed)" in after.stdout


def test_explain_in_json_holds_the_dossier_and_the_text_for_the_producer(conflicting: Shop) -> None:
    told = conflicting.json("explain", "acme/orders", "2026-09-01", code=1)
    (dossier,) = told["conflicts"]
    assert dossier["rows"]["changed"] == 1 and dossier["to_the_producer"].startswith("To acme:")
    assert told["causes"][0]["relies_on"] and len(told["causes"][0]["next"]) == 4
    assert [one["revision"] for one in told["deliveries"]] == [1, 1]


def test_a_ruling_in_json_says_what_it_decided(conflicting: Shop) -> None:
    ruled = conflicting.json("rule", "acme/orders", "2026-09-01", "keep", "--by", "ada", "--why", "the second was a test")
    assert (ruled["ruling"], ruled["revision"], ruled["by"]) == ("keep", 1, "ada") and len(ruled["settles"]) == 1
    assert conflicting.run("status").exit_code == 0


def test_a_ruling_is_shown_at_its_partition_in_dagster_and_the_check_turns_green(conflicting: Shop) -> None:
    """Ruling 4: who and why, where people look."""
    asset = dg.AssetKey(["acme", "orders"])
    assert conflicting.run("rule", "acme/orders", "2026-09-01", "keep", "--by", "ada", "--why", "a test").exit_code == 0
    with instance_of(open_deployment(conflicting.path, {})) as instance:
        (record,) = instance.fetch_observations(asset, limit=5).records
        observed = record.asset_observation
        assert observed is not None and observed.partition == "2026-09-01"
        assert observed.metadata["by"].value == "ada" and observed.metadata["why"].value == "a test"
        key = dg.AssetCheckKey(asset, "no_conflict")
        newest = instance.event_log_storage.get_latest_asset_check_execution_by_key([key])[key]
        assert newest.event is not None and newest.event.dagster_event is not None
        assert newest.event.dagster_event.asset_check_evaluation_data.passed


def test_a_ruling_that_does_not_fit_is_refused_and_says_what_is_known(conflicting: Shop) -> None:
    refused = conflicting.run("rule", "acme/orders", "2026-09-01", "keep", "--digest", "beefbeef", "--by", "a", "--why", "b")
    assert refused.exit_code == 1
    assert "`keep` keeps what was applied" in refused.stderr and "nothing was ruled" in refused.stderr
