"""README is true: its verbs, codes, feeds and limits are those of the program."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from valuestream_dagster.cli.main import cli
from valuestream_dagster.core.continuity import Reason
from valuestream_dagster.core.decision import Verdict
from valuestream_dagster.core.manifest import Kind, Manifest
from valuestream_dagster.core.sequence import Cadence, DatedSequence
from valuestream_dagster.feeds.loading import parse_feed
from valuestream_dagster.manifests import native
from valuestream_dagster.orchestration.checks import check_specs

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
SOURCE = "\n".join(path.read_text("utf-8") for path in (ROOT / "valuestream_dagster").rglob("*.py"))
YAML_BLOCKS = re.findall(r"```yaml\n(.*?)```", README, flags=re.DOTALL)
TEN_LINES, ALL_FIELDS, DATED, TRANSFORMED, NAMED, COMPONENT = YAML_BLOCKS


def test_every_verb_that_readme_names_exists() -> None:
    named = set(re.findall(r"(?:\$ |`)valuestream (?:-d \S+ )?([a-z]+)", README))
    assert named
    assert named <= set(cli.commands)


def test_every_code_that_readme_explains_is_one_that_the_program_gives() -> None:
    table = README[README.index("| code | what is wrong |") : README.index("| a key is blocked because")]
    codes = {
        code
        for line in table.splitlines()[2:]
        for code in re.findall(r"`([a-z]+(?:_[a-z]+)+)`", line.split("|")[1] if "|" in line else "")
    }
    assert len(codes) > 20
    # Some codes are put together from a field's name and a word.
    assert {code for code in codes if f'"{code}"' not in SOURCE} <= {"revision_invalid", "bytes_invalid"}


def test_every_verdict_that_can_be_given_is_explained() -> None:
    explained = set(re.findall(r"^\| `([a-z]+)` \|", README, flags=re.MULTILINE))
    assert {verdict.value for verdict in Verdict} <= explained


def test_the_ten_line_feed_works_as_it_stands(tmp_path: Path) -> None:
    feed = parse_feed(TEN_LINES, "readme.yaml", deployment=tmp_path, environ={})
    assert feed.name == "acme/orders"


def test_the_feed_with_every_field_works_as_it_stands(tmp_path: Path) -> None:
    feed = parse_feed(ALL_FIELDS, "readme.yaml", deployment=tmp_path, environ={})
    assert feed.rule.required
    assert feed.contract.delete_when


def test_the_feed_with_dated_columns_works_as_it_stands(tmp_path: Path) -> None:
    feed = parse_feed(DATED, "readme.yaml", deployment=tmp_path, environ={})
    assert len(feed.older) == 1 and len(feed.contract.columns) == 3


def test_the_feed_with_a_transform_works_as_it_stands(tmp_path: Path) -> None:
    (tmp_path / "transforms").mkdir()
    (tmp_path / "transforms/sales.sql").write_text(re.findall(r"# (SELECT .*)", TRANSFORMED)[0])
    feed = parse_feed(TRANSFORMED, "readme.yaml", deployment=tmp_path, environ={})
    assert feed.contract.transform is not None and feed.contract.totals == ("amount",)


def test_the_feed_without_a_manifest_works_as_it_stands(tmp_path: Path) -> None:
    feed = parse_feed(NAMED, "readme.yaml", deployment=tmp_path, environ={})
    assert feed.without_manifest and feed.quiet_seconds == 300


def test_every_code_of_a_receipt_stands_in_readme() -> None:
    """Whatever code a verdict can bear is explained: those of findings, of blocks, and of what is nobody's fault."""
    given = set(re.findall(r"(?:Superseded\([^)]*?|Held\(\s*|Told\(\s*[A-Za-z.]+, )\"([a-z_]+)\"", SOURCE))
    given |= {reason.value for reason in Reason} | set(re.findall(r'_superseded.*?"([a-z_]+)"', SOURCE))
    given -= {"accepted", "duplicate", "covered", "failed", "refused", "held", "incomplete"}
    assert len(given) > 8
    assert {code for code in given if f"`{code}`" not in README} == set()


def test_the_component_is_the_one_that_the_package_exports() -> None:
    assert COMPONENT.startswith("type: valuestream_dagster.DeliveryFeed\n")


def test_the_manifest_in_readme_states_a_delivery() -> None:
    text = re.search(r"```json\n(.*?)```", README, flags=re.DOTALL)
    assert text
    raw = json.loads(text[1].replace("…", "0" * 64))
    manifest = native.parse(
        json.dumps(raw).encode(),
        sequence=DatedSequence(Cadence.DAILY),
        source="acme",
        dataset="orders",
        default_kind=Kind.FULL,
        entries_limit=10,
    )
    assert isinstance(manifest, Manifest)


def test_readme_names_the_checks_that_an_asset_has(tmp_path: Path) -> None:
    feed = parse_feed(TEN_LINES, "readme.yaml", deployment=tmp_path, environ={})
    for spec in check_specs(feed):
        assert f"`{spec.name}`" in README


@pytest.mark.parametrize("target", ["demo", "test", "ui", "bench"])
def test_the_commands_that_readme_gives_are_targets(target: str) -> None:
    assert f"make {target}" in README
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text("utf-8"), flags=re.MULTILINE)
