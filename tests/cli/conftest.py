"""A small table with everything that real tables have, and a way to call the commands."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from typer.testing import CliRunner

from candid.cli import app


@pytest.fixture
def candid(monkeypatch, tmp_path):
    """``candid("info")`` runs a command in an empty directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("CANDID_DATA", raising=False)
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def write(tmp_path):
    """``write("name.csv", header, rows)``."""

    def write_csv(name, header, rows, separator=","):
        with (tmp_path / name).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, delimiter=separator).writerows([header, *rows])
        return tmp_path / name

    return write_csv


@pytest.fixture
def cars(write):
    """60 cars: an identifier, two colours, doors, a constant, weights of which two are missing, a price, nothing."""
    rng = np.random.default_rng(0)
    rows = []
    for number in range(60):
        colour, doors, weight = rng.choice(["red", "blue"]), int(rng.choice([3, 5])), rng.normal(1.2, 0.2)
        price = 10 + 4 * (colour == "red") + doors + 5 * weight + 0.3 * rng.normal()
        known = number not in (7, 30)
        rows.append([f"car{number}", colour, doors, 1, f"{weight:.4f}" if known else "NA", f"{price:.4f}", ""])
    return write("cars.csv", ["id", "colour", "doors", "one", "weight", "price", "nothing"], rows)
