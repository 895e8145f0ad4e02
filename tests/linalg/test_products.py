from __future__ import annotations

import pytest
import torch

from candid.linalg import products
from candid.linalg.crew import crew
from candid.linalg.products import add_product, onednn_takes, product_of, write_product

TOLERANCE = {"rtol": 1e-5, "atol": 1e-4}


@pytest.fixture(params=[True, False], ids=["oneDNN", "torch"])
def way(request, monkeypatch, always_onednn):
    """Both of them."""
    if not request.param:
        monkeypatch.setattr(products, "_layer", lambda: None)
    return request.param


def layouts(rows: int, columns: int) -> dict[str, torch.Tensor]:
    """The same shape as a matrix of its own, its transpose, parts of larger ones, and with strides."""
    return {
        "rows": torch.randn(rows, columns),
        "columns": torch.randn(columns, rows).mT,
        "part": torch.randn(rows + 3, columns + 5)[1 : rows + 1, 2 : columns + 2],
        "part of columns": torch.randn(columns + 3, rows + 5)[1 : columns + 1, 2 : rows + 2].mT,
        "every second": torch.randn(rows, 2 * columns)[:, ::2],
        "one row": torch.randn(1, columns).expand(rows, columns),
    }


def test_products_of_all_layouts(way, draw):
    for x in layouts(7, 5).values():
        for y in layouts(5, 6).values():
            expected = (x.double() @ y.double()).float()
            assert onednn_takes(x, y) == way
            torch.testing.assert_close(product_of(x, y), expected, **TOLERANCE)
            # Into a part of a larger matrix.
            room = torch.zeros(9, 9)
            write_product(x, y, room[1:8, 2:8])
            torch.testing.assert_close(room[1:8, 2:8], expected, **TOLERANCE)
            assert room.count_nonzero() <= expected.numel()


@pytest.mark.parametrize(
    "batches", [((), ()), ((1,), (1,)), ((1,), ()), ((3,), (3,)), ((3,), ()), ((2, 3), (3,)), ((2, 1), (1, 3))], ids=str
)
@pytest.mark.parametrize("size", [None, 1, 2], ids=["no crew", "crew of one", "crew of two"])
def test_products_of_batches(way, batches, size):
    x, y = torch.randn(*batches[0], 7, 5), torch.randn(*batches[1], 5, 6)
    expected = x.double() @ y.double()
    with crew(size):
        found = product_of(x, y)
        written = write_product(x, y, torch.empty_like(found))
    torch.testing.assert_close(found, expected.float(), **TOLERANCE)
    torch.testing.assert_close(written, expected.float(), **TOLERANCE)


@pytest.mark.parametrize("batch", [(), (1,), (3,)], ids=str)
@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 1.0), (-2.0, 0.5), (1.0, 0.0)])
def test_products_that_are_added(way, batch, alpha, beta):
    total, x, y = torch.randn(*batch, 7, 6), torch.randn(*batch, 7, 5), torch.randn(*batch, 5, 6)
    expected = beta * total + alpha * (x.double() @ y.double()).float()
    found = add_product(total, x, y, alpha, beta)
    assert found is total
    torch.testing.assert_close(found, expected, **TOLERANCE)


def test_a_total_of_which_nothing_is_left_may_hold_anything(way):
    x, y, total = torch.randn(7, 5), torch.randn(5, 6), torch.full((7, 6), torch.nan)
    torch.testing.assert_close(add_product(total, x, y, beta=0.0), x @ y, **TOLERANCE)


@pytest.mark.parametrize("sizes", [(0, 4, 3), (4, 0, 3), (4, 3, 0)], ids=str)
def test_nothing_to_multiply(way, sizes):
    rows, inner, columns = sizes
    found = product_of(torch.randn(rows, inner), torch.randn(inner, columns))
    assert torch.equal(found, torch.zeros(rows, columns))


def test_what_is_left_to_torch(always_onednn):
    x, y = torch.randn(7, 5), torch.randn(5, 6)
    assert onednn_takes(x, y)
    assert not onednn_takes(x.double(), y.double())
    assert not onednn_takes(x, y, least_work=211)
    assert onednn_takes(x, y, least_work=210)
    learned = y.clone().requires_grad_()
    assert not onednn_takes(x, learned)
    with torch.no_grad():
        assert onednn_takes(x, learned)
    assert torch.vmap(lambda row: torch.tensor(float(onednn_takes(row[None], y))))(x).sum() == 0


def test_gradients_flow_through_products_that_torch_records(always_onednn):
    x, y = torch.randn(7, 5), torch.randn(5, 6, requires_grad=True)
    (found,) = torch.autograd.grad(product_of(x, y).square().sum(), y)
    torch.testing.assert_close(found, 2 * x.mT @ x @ y.detach())


def test_what_onednn_multiplies_has_no_gaps(monkeypatch):
    """With gaps it takes a thousand times as long."""
    given = []

    def layer(x, weight, *rest):
        given.append(weight)
        return torch.ops.mkldnn._linear_pointwise.default(x, weight, *rest)

    monkeypatch.setattr(products, "_layer", lambda: layer)
    monkeypatch.setattr(products, "LEAST_WORK", 1)
    for y in layouts(5, 6).values():
        product_of(torch.randn(7, 5), y)
    assert len(given) == len(layouts(5, 6))
    assert all(weight.is_contiguous() or weight.mT.is_contiguous() for weight in given)


@pytest.mark.parametrize(
    ("processor", "capability", "there"),
    [
        ("vendor_id\t: AuthenticAMD", "AVX512", True),
        ("vendor_id\t: AuthenticAMD", "AVX2", False),
        ("vendor_id\t: GenuineIntel", "AVX512", False),
        ("", "AVX512", False),
    ],
)
def test_processors(monkeypatch, processor, capability, there):
    monkeypatch.setattr(products, "_processor", lambda: processor)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    assert (products._layer.__wrapped__() is not None) == there
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert products._layer.__wrapped__() is None


def test_a_torch_without_such_a_layer(monkeypatch):
    monkeypatch.setattr(products, "_processor", lambda: "AuthenticAMD")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    monkeypatch.setattr(torch.ops, "mkldnn", object())
    assert products._layer.__wrapped__() is None


def test_systems_without_a_description(monkeypatch):
    monkeypatch.setattr(products.Path, "read_text", lambda self: (_ for _ in ()).throw(FileNotFoundError()))
    monkeypatch.setattr(products.platform, "processor", lambda: "AMD64 Family 26, AuthenticAMD")
    assert products._processor() == "AMD64 Family 26, AuthenticAMD"
