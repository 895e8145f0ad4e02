from __future__ import annotations

import pytest
import torch

from candid.engines import pick_device, threads


def test_auto_is_a_device_that_exists():
    device = pick_device("auto")
    assert device.type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert pick_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize("name", ["cuda:99", "abacus"])
def test_a_device_that_does_not_exist(name):
    with pytest.raises(ValueError, match=f"device '{name}' cannot be used here .*device='auto'"):
        pick_device(name)


def test_threads_are_put_back():
    before = torch.get_num_threads()
    with threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before
    with pytest.raises(RuntimeError), threads(before + 1):
        raise RuntimeError
    assert torch.get_num_threads() == before


def test_none_leaves_threads_alone():
    before = torch.get_num_threads()
    with threads(None):
        assert torch.get_num_threads() == before
