from __future__ import annotations

import pytest
import torch

from candid.linalg import lower_product, residual_squares, transposed_lower_product, whiten_pair
from candid.linalg.crew import crew
from candid.linalg.relative import column_squares, lower_times_columns

SHAPES = {
    "plain": ((), 4, 6),
    "one point": ((), 1, 3),
    "one row": ((), 4, 1),
    "one of each": ((), 1, 1),
    "batch": ((3,), 4, 5),
    "two batch dimensions": ((2, 3), 3, 2),
}


def covariance(root):
    """A covariance as a function of any square matrix, so that finite differences keep it symmetric."""
    return root @ root.mT + torch.eye(root.shape[-1], dtype=root.dtype)


def parts_of(pair):
    return pair.first, pair.second, pair.root


def by_autograd(gram, cross, jitter, other_gram, other_cross, other_jitter):
    """The same, with autograd through the factorisations and jitter as a constant."""

    def factor(matrix, jitter):
        level = jitter * matrix.detach().diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
        return torch.linalg.cholesky(matrix + level * torch.eye(matrix.shape[-1], dtype=matrix.dtype))

    lower, other = factor(gram, jitter), factor(other_gram, other_jitter)
    solve = torch.linalg.solve_triangular
    return solve(lower, cross, upper=False), solve(other, other_cross, upper=False), solve(lower, other, upper=False)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_gradcheck(shape, draw):
    batch, m, n = shape
    roots = [draw(*batch, m, m).requires_grad_() for _ in range(2)]
    crosses = [draw(*batch, m, n).requires_grad_() for _ in range(2)]

    def whitened(root, cross, other_root, other_cross):
        return parts_of(whiten_pair(covariance(root), cross, 0.0, covariance(other_root), other_cross, 0.0))

    assert torch.autograd.gradcheck(whitened, (roots[0], crosses[0], roots[1], crosses[1]))


@pytest.mark.parametrize("size", [None, 1, 2], ids=["no crew", "crew of one", "crew of two"])
@pytest.mark.parametrize("jitters", [(0.0, 0.0), (1e-2, 1e-3)])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_values_and_gradients_are_those_of_autograd(shape, jitters, size, draw):
    batch, m, n = shape
    grams = [covariance(draw(*batch, m, m)).requires_grad_() for _ in range(2)]
    crosses = [draw(*batch, m, n).requires_grad_() for _ in range(2)]
    arguments = (grams[0], crosses[0], jitters[0], grams[1], crosses[1], jitters[1])
    with crew(size):
        pair = whiten_pair(*arguments)
    ours, theirs = parts_of(pair), by_autograd(*arguments)
    assert pair.first_factor.jitter.shape == pair.second_factor.jitter.shape == batch
    assert torch.equal(pair.root, pair.root.tril())
    pulls = [draw(*part.shape) for part in ours]
    learned = (*grams, *crosses)
    kept = {"retain_graph": True, "allow_unused": True, "materialize_grads": True}
    for chosen in ((0,), (1,), (2,), (0, 1, 2)):
        with crew(size):
            found = torch.autograd.grad(sum((pulls[k] * ours[k]).sum() for k in chosen), learned, **kept)
        expected = torch.autograd.grad(sum((pulls[k] * theirs[k]).sum() for k in chosen), learned, **kept)
        for position in (2, 3):
            torch.testing.assert_close(found[position], expected[position])
        for position in (0, 1):
            # Autograd splits the gradient of a symmetric matrix between its triangles in its own way.
            torch.testing.assert_close(found[position] + found[position].mT, expected[position] + expected[position].mT)
    for ours_k, theirs_k in zip(ours, theirs, strict=True):
        torch.testing.assert_close(ours_k, theirs_k)


def test_duplicate_points(draw):
    """Singular Gram matrices with their jitter: the gradients still agree with autograd's."""
    points = draw(4, 2)
    points = torch.cat([points, points[:2]])
    x, pulls = draw(5, 2), (draw(6, 5), draw(6, 5), draw(6, 6))
    points.requires_grad_()

    def loss(function):
        within, across = (points.unsqueeze(1) - other.unsqueeze(0) for other in (points, x))
        grams, crosses = (
            [torch.exp(-rate * apart.square().sum(-1)) for rate in (0.5, 1.5)] for apart in (within, across)
        )
        parts = function(grams[0], crosses[0], 1e-4, grams[1], crosses[1], 1e-3)
        return sum((pull * part).sum() for pull, part in zip(pulls, parts, strict=True))

    ours = torch.autograd.grad(loss(lambda *arguments: parts_of(whiten_pair(*arguments))), points)[0]
    theirs = torch.autograd.grad(loss(by_autograd), points)[0]
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


def test_equal_matrices_have_the_identity_for_a_root(draw):
    gram, cross = covariance(draw(2, 5, 5)), draw(2, 5, 3)
    pair = whiten_pair(gram, cross, 0.0, gram, cross, 0.0)
    torch.testing.assert_close(pair.root, torch.eye(5).double().expand(2, 5, 5))
    assert torch.equal(pair.first, pair.second)


def test_only_what_is_needed_is_differentiated(draw):
    grams, crosses = [covariance(draw(3, 3)) for _ in range(2)], [draw(3, 2) for _ in range(2)]
    grams[1].requires_grad_()
    pair = whiten_pair(grams[0], crosses[0], 0.0, grams[1], crosses[1], 0.0)
    (pair.root.sum() + pair.second.sum()).backward()
    assert grams[0].grad is None
    assert crosses[1].grad is None
    torch.testing.assert_close(grams[1].grad, grams[1].grad.T, rtol=0, atol=0)


def test_single_precision(draw):
    grams, crosses = [covariance(draw(2, 5, 5)) for _ in range(2)], [draw(2, 5, 7) for _ in range(2)]
    doubles = (grams[0], crosses[0], 0.0, grams[1], crosses[1], 0.0)
    singles = [part.float() if isinstance(part, torch.Tensor) else part for part in doubles]
    for found, expected in zip(parts_of(whiten_pair(*singles)), by_autograd(*doubles), strict=True):
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)


PRODUCT_SHAPES = {**SHAPES, "two blocks": ((2,), 230, 3), "four blocks": ((), 401, 2)}


@pytest.mark.parametrize("shape", PRODUCT_SHAPES.values(), ids=PRODUCT_SHAPES)
@pytest.mark.parametrize("kind", ["two triangles", "transposed"])
@pytest.mark.parametrize("size", [None, 2], ids=["no crew", "crew of two"])
def test_products(shape, kind, size, draw):
    batch, m, n = shape
    lower = draw(*batch, m, m).tril().requires_grad_()
    if kind == "two triangles":
        # There may be anything above its diagonal.
        x = draw(*batch, m, m).requires_grad_()
        with crew(size):
            ours = lower_product(lower, x)
        theirs = lower.tril() @ x.tril()
    else:
        x = draw(*batch, m, n).requires_grad_()
        ours, theirs = transposed_lower_product(lower, x), lower.tril().mT @ x
    torch.testing.assert_close(ours, theirs)
    pull = draw(*ours.shape)
    with crew(size):
        found = torch.autograd.grad((pull * ours).sum(), (lower, x))
    torch.testing.assert_close(found, torch.autograd.grad((pull * theirs).sum(), (lower, x)))


@pytest.mark.parametrize("size", [230, 401])
def test_pairs_of_several_blocks(size, draw):
    """With a gradient of T that is not triangular itself."""
    grams = [covariance(0.3 * draw(size, size)).requires_grad_() for _ in range(2)]
    crosses, pulls = [draw(size, 3) for _ in range(2)], (draw(size, 3), draw(size, 3), draw(size, size))
    arguments = (grams[0], crosses[0], 0.0, grams[1], crosses[1], 0.0)
    pair, theirs = whiten_pair(*arguments), by_autograd(*arguments)
    torch.testing.assert_close(pair.root, theirs[2])
    found, expected = (
        torch.autograd.grad(sum((pull * part).sum() for pull, part in zip(pulls, parts, strict=True)), grams)
        for parts in (parts_of(pair), theirs)
    )
    for ours, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(ours + ours.mT, wanted + wanted.mT)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_sums_of_squares(shape, draw):
    batch, m, n = shape
    x = draw(*batch, m, n).requires_grad_()
    torch.testing.assert_close(column_squares(x), (x * x).sum(-2))
    assert torch.autograd.gradcheck(column_squares, (x,))


RESIDUAL_SHAPES = {
    "plain": ((), 3, 5, 4),
    "one row": ((), 3, 1, 2),
    "one point": ((), 1, 4, 1),
    "batch": ((3,), 2, 4, 3),
    "two batch dimensions": ((2, 2), 3, 3, 2),
}


def conditional_parts(batch, m, n, j, draw):
    """A joint covariance of m and n variables, as a function of any root, and some weights and vectors."""

    def gram_and_features(root):
        joint = covariance(root)
        lower = torch.linalg.cholesky(joint[..., :m, :m])
        return joint[..., m:, m:], torch.linalg.solve_triangular(lower, joint[..., :m, m:], upper=False)

    drawn = [draw(*batch, *shape).requires_grad_() for shape in ((m + n, m + n), (m, j), (j, n))]
    return gram_and_features, *drawn


def squares_by_inverse(gram, features, weights, vectors, floor):
    left = gram - features.mT @ features + floor * torch.eye(gram.shape[-1], dtype=gram.dtype)
    apart = vectors - weights.mT @ features
    return (apart @ torch.linalg.inv(left) * apart).sum((-2, -1))


@pytest.mark.parametrize("shape", RESIDUAL_SHAPES.values(), ids=RESIDUAL_SHAPES)
def test_squares_in_a_residual_covariance(shape, draw):
    gram_and_features, root, weights, vectors = conditional_parts(*shape, draw)

    def squares(root, weights, vectors):
        return residual_squares(*gram_and_features(root), weights, vectors, 1e-2)

    value = squares(root, weights, vectors)
    assert value.shape == shape[0]
    torch.testing.assert_close(value, squares_by_inverse(*gram_and_features(root), weights, vectors, 1e-2))
    assert torch.autograd.gradcheck(squares, (root, weights, vectors))


@pytest.mark.parametrize("learned", [(0,), (1,), (2,), (3,), (0, 3)])
def test_squares_of_which_some_parts_are_learned(learned, draw):
    gram_and_features, root, *others = conditional_parts((2,), 3, 250, 4, draw)
    parts = [part.detach().requires_grad_(k in learned) for k, part in enumerate((*gram_and_features(root), *others))]
    ours, theirs = residual_squares(*parts, 1e-2), squares_by_inverse(*parts, 1e-2)
    chosen = [parts[k] for k in learned]
    for found, expected in zip(*(torch.autograd.grad(v.sum(), chosen) for v in (ours, theirs)), strict=True):
        symmetric = found.shape[-1] == found.shape[-2]
        # Of a symmetric matrix only the symmetric part of the gradient matters.
        torch.testing.assert_close(*((x + x.mT if symmetric else x) for x in (found, expected)))


def test_squares_of_single_precision_lose_little_more_than_their_arguments(draw):
    """Where nearly all of a covariance is explained, which rounding would leave far from positive definite."""
    x, z = 2 * draw(300, 2), 2 * draw(40, 2)

    def kernel(a, b):
        return torch.exp(-0.5 * (a.unsqueeze(1) - b.unsqueeze(0)).square().sum(-1))

    def value_and_gradients(function, parts):
        leaves = [part.detach().requires_grad_() for part in parts]
        value = function(*leaves, 1e-4)
        gram_bar, *others = torch.autograd.grad(value, leaves)
        return [part.detach().double() for part in (value, gram_bar + gram_bar.mT, *others)]

    lower = torch.linalg.cholesky(kernel(z, z) + 1e-6 * torch.eye(40).double())
    features = torch.linalg.solve_triangular(lower, kernel(z, x), upper=False)
    exact = [kernel(x, x), features, draw(40, 3), 0.1 * draw(3, 300)]
    rounded = [part.float() for part in exact]
    assert residual_squares(*rounded, 1e-4).dtype == torch.float32
    found = value_and_gradients(residual_squares, rounded)
    best = value_and_gradients(squares_by_inverse, [part.double() for part in rounded])
    wanted = value_and_gradients(squares_by_inverse, exact)
    torch.testing.assert_close(found[0], wanted[0], rtol=5e-3, atol=0)
    for ours, least, truth in zip(found[1:], best[1:], wanted[1:], strict=True):
        assert (ours - truth).norm() < 3 * (least - truth).norm() < 0.05 * truth.norm()


@torch.no_grad()
def test_rounding_errors_raise_the_floor():
    """Where what is left of the covariance is indefinite by more than the floor, that is raised until it is not."""
    features = torch.full((2, 5), 0.5).double().repeat(1, 4)
    gram = features.mT @ features - 0.05 * torch.eye(20)
    vectors = torch.ones(1, 20).double()
    # 1e-4, 1e-3 and 1e-2 are too little; 0.1 leaves 0.05 I
    found = residual_squares(gram, features, torch.zeros(2, 1).double(), vectors, 1e-4)
    torch.testing.assert_close(found, torch.tensor(20 / 0.05).double())


@torch.no_grad()
def test_small_errors_that_many_rows_have_in_common():
    """Entries that are all wrong by 1e-3 make an eigenvalue of −0.5 with 500 rows; a floor of 1 is needed."""
    features, vectors = torch.zeros(1, 500).double(), torch.eye(500).double()[:1]
    gram = torch.full((500, 500), -1e-3).double()
    found = residual_squares(gram, features, torch.zeros(1, 1).double(), vectors, 1e-4)
    # (I − 1e-3·11ᵀ)⁻¹ = I + 2e-3·11ᵀ
    torch.testing.assert_close(found, torch.tensor(1.002).double())


@pytest.mark.parametrize("size", [None, 2], ids=["no crew", "crew of two"])
@pytest.mark.parametrize("batch", [(), (2,)], ids=["plain", "batch"])
def test_a_triangle_times_some_columns(batch, size, draw):
    """Which have no gradient; what is above the diagonal counts for nothing."""
    lower, columns = draw(*batch, 5, 5), draw(5, 3)
    loose = (lower + torch.full_like(lower, torch.nan).triu(1)).requires_grad_()
    with crew(size):
        found = lower_times_columns(loose, columns)
        pull = draw(*found.shape)
        (bar,) = torch.autograd.grad((pull * found).sum(), [loose])
    torch.testing.assert_close(found.detach(), lower.tril() @ columns)
    torch.testing.assert_close(bar, (pull @ columns.mT).tril())
