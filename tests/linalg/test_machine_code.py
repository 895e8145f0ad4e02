"""Machine code that is kept on disk is used only as long as it is that of the source."""

from __future__ import annotations

import pytest

pytest.importorskip("numba")

from candid.linalg import machine_code


@pytest.fixture
def shared_file(tmp_path, monkeypatch):
    """A file that stands for those whose functions become part of others."""
    path = tmp_path / "shared.py"
    monkeypatch.setattr(machine_code, "SHARED", (str(path),))
    yield path
    machine_code._version.cache_clear()


def test_a_change_of_what_is_called_is_a_change_of_the_name(shared_file):
    names = []
    for source in ("one", "two", "one"):
        shared_file.write_text(source)
        machine_code._version.cache_clear()

        def double(x):
            return 2 * x

        names.append(machine_code.kept_on_disk(double).py_func.__qualname__)
    first, second, third = names
    assert first == third != second
    assert all("double" in name for name in names)
