"""What all verbs have in common: help that teaches, exit codes, errors as sentences, one document on stdout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from valuestream_dagster import deployment
from valuestream_dagster.cli import look, options, output
from valuestream_dagster.cli.main import cli
from valuestream_tests.cli.shop import Shop

VERBS = (
    "check", "probe", "pack", "plan", "apply", "status", "explain", "rule", "receipts", "history", "query", "recover", "verify",
    "vacuum", "backup", "restore", "rebuild", "ui",
)  # fmt: skip
PROGRAM = [sys.executable, "-c", "from valuestream_dagster.cli.main import main; main()"]


def program(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("VALUESTREAM_")}
    return subprocess.run([*PROGRAM, *words], capture_output=True, text=True, check=False, env={**environ, **more})


def test_the_names_of_the_environment_are_those_of_the_deployment() -> None:
    assert options.DEPLOYMENT_VARIABLE == deployment.DEPLOYMENT_VARIABLE
    assert options.DEFAULT_DEPLOYMENT == deployment.DEFAULT_DEPLOYMENT
    assert output.NOW_VARIABLE == deployment.NOW_VARIABLE


def test_help_shows_every_verb_and_the_way_in_five_steps() -> None:
    text = CliRunner().invoke(cli, ["--help"]).output
    assert list(cli.commands) == list(VERBS)
    for step in ("1.", "2.", "3.", "4.", "5.", *VERBS):
        assert step in text


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_teaches_with_sentences_and_an_example(verb: str) -> None:
    result = CliRunner().invoke(cli, [verb, "--help"])
    assert result.exit_code == 0
    assert "Example" in result.output
    assert f"  valuestream {verb}" in result.output
    assert "\\b" not in result.output
    assert (cli.commands[verb].help or "").count(".") >= 2


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["check"], 0),
        (["plan"], 0),
        (["status"], 0),
        (["status", "--strict"], 0),
        (["receipts"], 0),
        (["history", "acme/orders"], 0),
        (["history", "acme/orders", "2026-09-01"], 0),
        (["explain", "acme/orders", "2026-09-01"], 0),
        (["explain", "acme/orders", "2026-09-02"], 0),
        (["explain", "acme/orders"], 2),
        (["explain", "acme/orders", "2026-09-31"], 2),
        (["rule", "acme/orders", "2026-09-01", "keep", "--by", "ada", "--why", "so"], 1),
        (["rule", "acme/orders", "2026-09-01", "waive", "--by", "ada", "--why", "so"], 2),
        (["rule", "acme/orders", "2026-09-01", "keep", "--by", " ", "--why", "so"], 2),
        (["rule", "acme/orders", "2026-09-01", "keep"], 2),
        (["recover"], 0),
        (["backup"], 0),
        (["restore", "nowhere"], 2),
        (["rebuild"], 2),
        (["verify"], 0),
        (["vacuum"], 0),
        (["vacuum", "--yes"], 0),
        (["apply"], 0),
        (["query", "SELECT 1"], 0),
        (["status", "acme/nothing"], 2),
        (["receipts", "acme/nothing"], 2),
        (["history"], 2),
        (["history", "acme/orders", "2026-02-30"], 2),
        (["apply", "--key", "2026-09-01"], 2),
        (["apply", "acme/orders", "--key", "yesterday"], 2),
        (["query", "SELEC 1"], 2),
        (["query", "SELECT * FROM acme.nothing"], 2),
        (["receipts", "--limit", "0"], 2),
        (["nonsense"], 2),
        (["status", "--nonsense"], 2),
    ],
)
def test_exit_codes_where_nothing_has_arrived(shop: Shop, words: list[str], code: int) -> None:
    result = shop.run(*words, before=True)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    if code == 2:
        assert result.stdout == ""
        assert "next: " in result.stderr


def test_the_deployment_may_be_named_before_or_after_the_verb_or_by_the_environment(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shop.run("check", before=True).stdout == shop.run("check").stdout
    monkeypatch.setenv("VALUESTREAM_DEPLOYMENT", str(shop.path))
    assert CliRunner().invoke(cli, ["check"]).stdout == shop.run("check").stdout
    both = CliRunner().invoke(cli, ["-d", "/nowhere", "check", "-d", str(shop.path)])
    assert both.exit_code == 0


def test_an_error_is_one_document_and_a_sentence(shop: Shop) -> None:
    result = shop.run("status", "acme/order", "--json")
    document = json.loads(result.stdout)
    assert result.exit_code == 2
    assert document["error"]["code"] == "wrong_use"
    assert "no feed acme/order" in document["error"]["message"]
    assert document["error"]["next"] == "did you mean acme/orders?"
    assert "no feed acme/order" in result.stderr


def test_wrong_options_are_a_document_too(shop: Shop) -> None:
    result = shop.run("status", "--json", "--colour")
    assert json.loads(result.stdout)["error"]["code"] == "wrong_use"
    assert result.exit_code == 2


def test_an_unexpected_error_is_one_line_and_code_3(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def burst(*_: object) -> None:
        raise ZeroDivisionError("a\nb")

    monkeypatch.setattr(look, "open_at", burst)
    result = shop.run("receipts")
    assert result.exit_code == 3
    first, second = result.stderr.splitlines()
    assert first == "valuestream: internal error: ZeroDivisionError: a b, please report"
    assert "VALUESTREAM_TRACEBACK=1" in second
    monkeypatch.setenv("VALUESTREAM_TRACEBACK", "1")
    assert "Traceback" in shop.run("receipts").stderr


def test_a_folder_that_refuses_is_no_defect_of_ours(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "/data/x")

    monkeypatch.setattr(look, "open_at", full)
    result = shop.run("receipts")
    assert result.exit_code == 1
    assert "No space left on device (/data/x)" in result.stderr


def test_ctrl_c_ends_with_130(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(look, "open_at", interrupted)
    assert shop.run("receipts").exit_code == 130


def test_wrong_yaml_is_told_by_line_whatever_the_verb(shop: Shop) -> None:
    (shop.path / "feeds/orders.yaml").write_text("source: acme\ndatset: orders\n")
    document = shop.json("status", code=2)
    assert document["error"]["code"] == "configuration_invalid"
    found = [(finding["file"], finding["line"]) for finding in document["error"]["findings"]]
    assert ("feeds/orders.yaml", 2) in found


def test_a_fixed_clock_is_said(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "now_is_fixed" not in shop.json("status")
    monkeypatch.setenv("VALUESTREAM_NOW", "2026-09-03T06:00:00Z")
    document = shop.json("status")
    assert document["generated_at"] == "2026-09-03T06:00:00Z"
    assert document["now_is_fixed"] is True
    monkeypatch.setenv("VALUESTREAM_NOW", "tomorrow")
    assert shop.json("status", code=2)["error"]["code"] == "wrong_use"


def test_a_terminal_never_gets_a_producers_control_characters() -> None:
    assert output.shown("a\x1b[2Jb\x9bc\u202e\ud800") == "a\\x1b[2Jb\\x9bc\\u202e\\ud800"
    assert output.cell_text("two\nlines") == "two\\nlines"


def test_json_has_exact_numbers_and_dates_as_text(shop: Shop) -> None:
    sql = "SELECT 1.10::DECIMAL(5,2), DATE '2026-09-01', TIMESTAMP '2026-09-01 10:00:00', 'nan'::DOUBLE, NULL, [1.5::DECIMAL(3,1)]"
    document = shop.json("query", sql)
    assert document["rows"] == [["1.10", "2026-09-01", "2026-09-01T10:00:00", "nan", None, ["1.5"]]]


def test_query_shows_csv_and_a_table(shop: Shop) -> None:
    sql = "SELECT 1 AS a, 'x,y' AS b, NULL AS c"
    assert shop.run("query", sql, "--csv").stdout == 'a,b,c\n1,"x,y",\n'
    assert shop.run("query", sql).stdout.splitlines() == ["a  b    c", "1  x,y"]


def test_query_cannot_change_the_catalogue(shop: Shop) -> None:
    result = shop.run("query", "CREATE TABLE acme.mine (a INTEGER)")
    assert result.exit_code == 2
    assert "read-only" in result.stderr


# --- as real processes -----------------------------------------------------------------------------------------------


def test_help_answers_at_once_and_loads_nothing_heavy() -> None:
    started = time.monotonic()
    assert program("--help").returncode == 0
    assert time.monotonic() - started < 3  # 0.2 s alone; this machine may be busy
    script = (
        "import sys; sys.argv = ['valuestream', '--help']\n"
        "from valuestream_dagster.cli.main import main\n"
        "try: main()\n"
        "finally: sys.stderr.write(' '.join(sys.modules))"
    )
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False).stderr.split()
    assert {"dagster", "pandas", "duckdb", "pydantic", "rich", "pyarrow"}.isdisjoint(loaded)


@pytest.mark.parametrize("words", [["check"], ["receipts"], ["apply"], ["status"], ["plan"]])
def test_without_work_no_verb_loads_dagster(shop: Shop, words: list[str]) -> None:
    script = (
        f"import sys; sys.argv = ['valuestream', '-d', {str(shop.path)!r}, *{words!r}]\n"
        "from valuestream_dagster.cli.main import main\n"
        "try: main()\n"
        "finally: sys.stderr.write(' '.join(sys.modules))"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-500:]
    assert "dagster" not in ended.stderr.split()


def test_a_reader_that_goes_away_causes_no_traceback(shop: Shop) -> None:
    command = [*PROGRAM, "-d", str(shop.path), "query", "SELECT * FROM range(200000)", "--csv"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.readline()
        running.stdout.close()
        errors = running.stderr.read()
        code = running.wait()
    assert errors == ""
    assert code != 0


def test_a_taken_port_is_wrong_use(shop: Shop) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = shop.run("ui", "--port", str(taken.getsockname()[1]))
    assert result.exit_code == 2
    assert "is not free" in result.stderr


def test_the_ui_is_started_over_this_deployment(shop: Shop, tmp_path: Path) -> None:
    from valuestream_dagster.cli.act import ui_command, ui_environment

    command = ui_command(3001)
    assert command[:4] == [sys.executable, "-m", "dagster", "dev"]
    assert command[-4:] == ["-h", "127.0.0.1", "-p", "3001"]
    environ = ui_environment({"PATH": "x", "DAGSTER_HOME": "old"}, tmp_path, shop.path)
    assert environ == {"PATH": "x", "DAGSTER_HOME": str(tmp_path), "VALUESTREAM_DEPLOYMENT": str(shop.path)}


def test_errors_of_click_name_the_verb(shop: Shop) -> None:
    with pytest.raises(click.UsageError):
        cli.commands["history"].main(["--nothing"], standalone_mode=False)
    assert "valuestream history --help" in shop.run("history", "--nothing").stderr
