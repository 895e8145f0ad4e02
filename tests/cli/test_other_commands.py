"""``candid methods`` and ``info``, and what the commands share."""

from __future__ import annotations

import warnings

import pytest
import typer
from typer.testing import CliRunner

import candid as library
from candid.cli.console import OneLineErrors, collected_warnings


def test_methods_lists_every_row(candid):
    result = candid("methods")
    assert result.exit_code == 0
    for row in library.methods():
        assert row.name in result.stdout
        assert row.summary.split()[0] in result.stdout


def test_info(candid, monkeypatch, tmp_path):
    (tmp_path / "mine.parquet").touch()
    monkeypatch.setenv("CANDID_DATA", str(tmp_path))
    result = candid("info")
    assert result.exit_code == 0, result.output
    for text in ("torch", "threads", "device", "CANDID_DATA", "mine", "diabetes"):
        assert text in result.stdout
    monkeypatch.setenv("CANDID_DATA", str(tmp_path / "absent"))
    result = candid("info")
    assert result.exit_code == 0, result.output
    assert "is not a directory" in " ".join(result.stdout.split())


def test_only_expected_errors_are_shortened():
    app = typer.Typer(cls=OneLineErrors)

    @app.command()
    def expected() -> None:
        raise ValueError("two\nlines [bold]and brackets[/]")

    @app.command()
    def bug() -> None:
        raise KeyError("unforeseen")

    result = CliRunner().invoke(app, ["expected"])
    assert result.exit_code == 2
    assert result.stderr == "Error: two lines [bold]and brackets[/]\n"
    result = CliRunner().invoke(app, ["bug"])
    assert isinstance(result.exception, KeyError)
    assert CliRunner().invoke(app, ["unknown"]).exit_code == 2


def test_warnings_are_collected_once():
    with collected_warnings() as said:
        for _ in range(2):
            warnings.warn("take\ncare", stacklevel=1)
    assert said == ["take care"]


def test_help_names_the_commands(candid):
    result = candid("--help")
    for command in ("compare", "fit", "predict", "methods", "info", "bench"):
        assert command in result.stdout


@pytest.mark.parametrize("command", ["compare", "fit", "predict", "methods", "info", "bench"])
def test_every_command_explains_itself(candid, command):
    result = candid(command, "--help")
    assert result.exit_code == 0
    assert "Usage" in result.stdout
