from __future__ import annotations

import copy
import gc
import weakref

import pytest
import torch

from candid.families import Conditional, block_inputs, blockwise_omega, blockwise_pair, decoupled_kernel, make_mean
from candid.kernels import Deep, Network, make_kernel, make_network, networks_in
from candid.linalg import NotPositiveDefinite, relative_divergence, without_machine_code
from candid.linalg.crew import crew
from candid.linalg.crew_cholesky import Bordered
from candid.linalg.relative_divergence import RelativeDivergence
from candid.marginal import Batch
from candid.parameters import hyperparameters
from candid.weights import WEIGHTS
from small_models import conditional_problem, random_rows, separated_points, sparse_problem

PARTS = ("mean", "residual", "spread")
whitenings = pytest.mark.parametrize("whiten", ["mean", "covariance"])
all_weights = pytest.mark.parametrize("weights", ["full", "diagonal", "delta"])


@whitenings
@all_weights
@pytest.mark.parametrize("kernel", ["matern52", "rbf + matern32"])
def test_equal_kernels_are_one_kernel(weights, whiten, kernel):
    rows = random_rows(20, n_outputs=2, seed=1)
    plain = sparse_problem(rows, weights, kernel=kernel, n_points=6, seed=2).family
    family = conditional_problem(rows, weights, kernel=kernel, points=plain.points.detach(), whiten=whiten).family
    family.mean_kernel.load_state_dict(plain.kernel.unit.state_dict())
    for part in ("kernel", "mean", "weights"):
        getattr(family, part).load_state_dict(getattr(plain, part).state_dict())
    ours, theirs = family.evaluate(rows.whole()), plain.evaluate(rows.whole())
    for part in PARTS:
        torch.testing.assert_close(getattr(ours.marginal, part), getattr(theirs.marginal, part))
    torch.testing.assert_close(ours.penalties["kl"], theirs.penalties["kl"])
    assert 0 <= ours.penalties["omega"] < 1e-20
    # So are the closed forms.
    found, expected = family.regression()(rows.x), plain.regression()(rows.x)
    assert torch.equal(found.mean, expected.mean)
    assert torch.equal(found.residual, expected.residual)
    precision = torch.diag_embed(torch.full((2, 6), 4.0).double())
    for model in (family, plain):
        model.assign(torch.ones(2, 6).double(), precision)
    for found, expected in zip(family.weights.parameters(), plain.weights.parameters(), strict=True):
        assert torch.equal(found, expected)


@torch.no_grad()
def test_both_whitenings_are_the_same_model():
    """For weights that say the same about u, everything is the same."""
    rows = random_rows(20, n_outputs=2, seed=3)
    by_mean = conditional_problem(rows, "full", "predictive", whiten="mean", seed=4)
    by_covariance = conditional_problem(rows, "full", "predictive", whiten="covariance", seed=4)
    by_covariance.load_state_dict(by_mean.state_dict())
    family, weights = by_mean.family, by_covariance.family.weights
    lower_k, lower_q = (torch.linalg.cholesky(k(family.points)) for k in (family.kernel.unit, family.mean_kernel))
    # L_k w = L_q v
    turn = torch.linalg.solve(lower_k, lower_q)
    weights.mean.copy_((turn @ weights.mean.unsqueeze(-1)).squeeze(-1))
    weights.lower.copy_(turn @ weights.lower.tril())
    ours, theirs = (problem.family.evaluate(rows.whole()) for problem in (by_mean, by_covariance))
    for part in PARTS:
        torch.testing.assert_close(getattr(ours.marginal, part), getattr(theirs.marginal, part))
    for name in ("kl", "omega"):
        torch.testing.assert_close(ours.penalties[name], theirs.penalties[name])


@whitenings
def test_omega_of_some_rows_is_at_most_that_of_all(whiten):
    rows = random_rows(40, seed=5)
    family = conditional_problem(rows, whiten=whiten, seed=6).family
    everything = family.evaluate(rows.whole()).penalties["omega"]
    parts = [family.evaluate(rows.batch(part)).penalties["omega"] for part in torch.arange(40).split(13)]
    assert 0 < max(parts) < everything


def test_omega_may_be_scaled_up_to_all_rows():
    rows = random_rows(40, seed=7, weighted=True)
    batch = rows.batch(torch.arange(10))
    plain, scaled = (conditional_problem(rows, seed=8, omega_scale=scale).family for scale in ("paper", "n_over_b"))
    expected = plain.evaluate(batch).penalties["omega"] * rows.weight.sum() / rows.weight[:10].sum()
    torch.testing.assert_close(scaled.evaluate(batch).penalties["omega"], expected)


def test_omega_depends_on_its_floor():
    rows = random_rows(15, seed=9)
    low, high = (conditional_problem(rows, seed=10, omega_floor=floor).family for floor in (1e-4, 1e-1))
    assert low.evaluate(rows.whole()).penalties["omega"] > 2 * high.evaluate(rows.whole()).penalties["omega"]


@whitenings
@pytest.mark.parametrize("weights", ["diagonal", "full"])
@torch.no_grad()
def test_omega_of_some_draws_is_omega_on_average(whiten, weights):
    rows = random_rows(15, n_outputs=2, seed=13)
    exact, drawn = (
        conditional_problem(rows, weights, n_points=6, whiten=whiten, seed=14, omega_draws=number).family
        for number in (None, 4)
    )
    estimates = []
    for step in range(100):
        drawn.refresh(step)
        estimates.append(drawn.evaluate(rows.whole()).penalties["omega"])
    estimates, expected = torch.stack(estimates), exact.evaluate(rows.whole()).penalties["omega"]
    assert estimates.std() > 0.01 * expected
    assert (estimates.mean() - expected).abs() < 4 * estimates.std() / 10
    # The same step, the same numbers.
    drawn.refresh(0)
    assert torch.equal(drawn.evaluate(rows.whole()).penalties["omega"], estimates[0])


@torch.no_grad()
def test_omega_of_few_points_needs_no_draws():
    rows = random_rows(15, seed=15)
    exact, drawn = (conditional_problem(rows, n_points=6, seed=16, omega_draws=number).family for number in (None, 6))
    assert torch.equal(*(family.evaluate(rows.whole()).penalties["omega"] for family in (exact, drawn)))


def test_without_omega_the_rows_are_not_compared_with_each_other(monkeypatch):
    rows = random_rows(15, seed=11)
    for with_omega in (False, True):
        family = conditional_problem(rows, n_points=4, with_omega=with_omega, seed=12).family
        unit, shapes = family.kernel.unit, []
        forward = unit.forward

        def recorded(x1, x2=None, forward=forward, shapes=shapes):
            shapes.append(forward(x1, x2).shape[-2:])
            return forward(x1, x2)

        monkeypatch.setattr(unit, "forward", recorded)
        assert ("omega" in family.evaluate(rows.whole()).penalties) == with_omega
        assert ((15, 15) in shapes) == with_omega


@whitenings
@all_weights
def test_gradients_of_everything(weights, whiten, draw):
    """With respect to hyper-parameters, points and weights, for all that is returned."""
    rows = random_rows(6, n_outputs=2, seed=13)
    problem = conditional_problem(rows, weights, n_points=3, whiten=whiten, mean="linear", seed=14)
    family = problem.family
    names, values = zip(*family.named_parameters(), strict=True)

    def numbers(*values):
        evaluation = torch.func.functional_call(family, dict(zip(names, values, strict=True)), (rows.whole(),))
        marginal, penalties = evaluation.marginal, evaluation.penalties
        return marginal.mean, marginal.residual, marginal.spread, penalties["kl"], penalties["omega"]

    family.forward = family.evaluate
    assert torch.autograd.gradcheck(numbers, values)


def test_a_predictor_shares_nothing_with_itself():
    """Even where hyper-parameters are tied: model files hold every tensor once."""
    tensors = (
        conditional_problem(random_rows(12, seed=18), kernel="rq", seed=19).family.predictor().state_dict().values()
    )
    assert len({tensor.untyped_storage().data_ptr() for tensor in tensors}) == len(tensors)


@whitenings
def test_networks_see_the_rows_once_and_together(whiten):
    """A step needs one pass, in which batch normalisation has the statistics of the rows, for all that it computes."""
    rows = random_rows(20, n_features=3, seed=28, weighted=True)
    family = conditional_problem(rows, n_points=5, whiten=whiten, seed=29).family
    for name, seed in (("kernel", 1), ("mean_kernel", 2)):
        network = make_network(Network((4, 2), normalise=True, scaled_output=True), 3, seed=seed).double()
        setattr(family, name, Deep(network, make_kernel("rbf + linear", 2, batch_shape=(1,)).double()))
    of_covariance, of_mean = (
        as_a_matrix(kernel, family.points, rows) for kernel in (family.kernel, family.mean_kernel)
    )
    found = family.evaluate(rows.whole())
    assert all(int(network.layers[-1].n_steps) == 1 for network in networks_in(family))
    kzz, kzx, kxx = (of_covariance[0, some, others] for some, others in BLOCKS)
    qzz, qzx, _ = (of_mean[0, some, others] for some, others in BLOCKS)
    # q(u) = N(L m, L S Lᵀ)
    lower = torch.linalg.cholesky(qzz if whiten == "mean" else kzz)
    mean, root = lower @ family.weights.mean[0], lower @ family.weights.root()[0]
    gain, coupled = torch.linalg.solve(qzz, qzx).mT, torch.linalg.solve(kzz, kzx).mT
    left = kxx - coupled @ kzx
    torch.testing.assert_close(found.marginal.mean[:, 0], family.mean(rows.x)[:, 0] + gain @ mean)
    torch.testing.assert_close(found.marginal.residual[:, 0], left.diagonal())
    torch.testing.assert_close(found.marginal.spread[:, 0], (gain @ root).square().sum(-1))
    apart = (gain - coupled) @ torch.cat([mean.unsqueeze(-1), root], -1)
    solved = torch.linalg.solve(left + 1e-4 * torch.eye(20).double(), apart)
    torch.testing.assert_close(found.penalties["omega"], 0.5 * (apart * solved).sum())


# Of a matrix of five points and the rows behind them
BLOCKS = [(slice(5), slice(5)), (slice(5), slice(5, None)), (slice(5, None), slice(5, None))]


def as_a_matrix(kernel, points, rows):
    """The covariance of points and rows, whose features a copy of the network computes in one pass."""
    kernel = copy.deepcopy(kernel)
    at_rows, at_points = kernel.network.together(rows.x, points, weight=rows.weight)
    return kernel.base(torch.cat([at_points, at_rows.unsqueeze(0)], -2))


@whitenings
def test_each_factorisation_has_its_own_jitter(whiten):
    """What one step needed, the next one and the predictor start from."""
    rows = random_rows(20, n_outputs=2, seed=20)
    problem = conditional_problem(rows, n_points=6, whiten=whiten, seed=21)
    family = problem.family
    with torch.no_grad():
        family.kernel.base.lengthscale.raw[1].fill_(12.0)
    problem.loss(rows.whole()).backward()
    assert torch.equal(family.jitter > 0, torch.tensor([[False, False], [True, False]]))
    before = family.jitter.clone()
    problem.loss(rows.whole())
    assert torch.equal(family.jitter, before)
    assert all(torch.isfinite(parameter.grad).all() for parameter in problem.parameters())
    assert torch.isfinite(family.predictor().marginal(rows.x).mean).all()


@whitenings
def test_duplicate_points(whiten):
    rows = random_rows(20, seed=22)
    points = rows.x[:4].repeat(2, 1).unsqueeze(0)
    problem = conditional_problem(rows, points=points, whiten=whiten, jitter=1e-6, seed=23)
    trained = problem.family.evaluate(rows.whole())
    problem.loss(rows.whole()).backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in problem.parameters())
    predicted = problem.family.predictor().marginal(rows.x)
    torch.testing.assert_close(predicted.mean, trained.marginal.mean, rtol=1e-6, atol=1e-6)


@whitenings
def test_single_precision(whiten):
    rows = random_rows(30, seed=24)
    problem = conditional_problem(rows, jitter=1e-6, whiten=whiten, seed=25)
    expected = problem.family.evaluate(rows.whole())
    found = copy.deepcopy(problem).float().family.evaluate(rows.to(torch.float32).whole())
    for name in ("kl", "omega"):
        assert found.penalties[name].dtype == torch.float32
        torch.testing.assert_close(found.penalties[name].double(), expected.penalties[name], rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(found.marginal.mean.double(), expected.marginal.mean, rtol=1e-3, atol=1e-3)


@whitenings
def test_chains_are_models_side_by_side(whiten, draw):
    rows, generator = random_rows(9, 2, 2, seed=26), torch.Generator().manual_seed(27)

    def build(chains, points):
        kernel = make_kernel("rq", 2, batch_shape=(*chains, 2))
        mean, weights = make_mean("constant", 2, 2, chains), WEIGHTS["full"](5, (*chains, 2))
        return Conditional(kernel, decoupled_kernel(kernel), mean, points, weights, 0.0, whiten=whiten).double()

    points = torch.stack([separated_points(5, 2, 2, generator) for _ in range(3)])
    together = build((3,), points)
    with torch.no_grad():
        for parameter in together.parameters():
            parameter.add_(0.3 * draw(*parameter.shape))
    for x in (rows.x, draw(3, 9, 2)):
        batch = Batch(x, rows.y, rows.weight, rows.total)
        evaluation, predictor = together.evaluate(batch), together.predictor()
        predicted, joint = predictor.marginal(x), predictor.joint(x)
        for chain in range(3):
            single = build((), points[0])
            single.load_state_dict({name: tensor[chain] for name, tensor in together.state_dict().items()})
            row = x if x.dim() == 2 else x[chain]
            own = single.evaluate(Batch(row, rows.y, rows.weight, rows.total))
            for part in PARTS:
                torch.testing.assert_close(getattr(evaluation.marginal, part)[chain], getattr(own.marginal, part))
            for name in ("kl", "omega"):
                torch.testing.assert_close(evaluation.penalties[name][chain], own.penalties[name])
            torch.testing.assert_close(predicted.mean[chain], own.marginal.mean)
            torch.testing.assert_close(predicted.variance[chain], own.marginal.variance)
            torch.testing.assert_close(joint.covariance[chain], single.predictor().joint(row).covariance)


def test_all_weights_are_learned():
    family = conditional_problem(random_rows(10), "diagonal").family
    expected = {id(family.weights.mean), id(family.weights.log_scale)}
    assert {id(parameter) for parameter in family.weight_parameters()} == expected


def test_there_is_no_joint_prior():
    rows = random_rows(10)
    with pytest.raises(TypeError, match="use it with a row objective"):
        conditional_problem(rows).family.prior(rows.whole())


def test_the_kernel_of_the_mean_has_no_amplitude():
    kernel = make_kernel("rbf", 2, batch_shape=(1,))
    points = torch.zeros(1, 3, 2)
    with pytest.raises(ValueError, match="unit amplitude"):
        Conditional(kernel, copy.deepcopy(kernel), make_mean("zero", 2, 1), points, WEIGHTS["full"](3, (1,)), 0.0)


def names_of(module) -> set[str]:
    return {name for name, _ in hyperparameters(module)}


@pytest.mark.parametrize("move", [lambda family: family, copy.deepcopy, lambda family: copy.deepcopy(family).double()])
def test_what_is_not_decoupled_stays_tied(move):
    family = move(conditional_problem(random_rows(10), kernel="rq + periodic").float().family)
    assert {name for name in names_of(family) if name.startswith("mean_kernel.")} == {
        "mean_kernel.parts.0.base.lengthscale",
        "mean_kernel.parts.1.base.lengthscale",
    }
    ours, theirs = dict(family.kernel.unit.named_parameters()), dict(family.mean_kernel.named_parameters())
    assert ours.keys() == theirs.keys()
    for name in ours:
        assert (ours[name] is theirs[name]) == ("lengthscale" not in name)
    before = {name: tensor.clone() for name, tensor in family.state_dict().items()}
    with torch.no_grad():
        for parameter in family.parameters():
            parameter.add_(1.0)
    family.load_state_dict(before)
    assert torch.equal(family.mean_kernel.parts[0].base.alpha.value, family.kernel.unit.parts[0].base.alpha.value)
    assert all(torch.equal(tensor, before[name]) for name, tensor in family.state_dict().items())
    family.kernel.unit.parts[0].base.alpha.set(3.0)
    torch.testing.assert_close(
        family.mean_kernel.parts[0].base.alpha.value, torch.full((1, 1, 1), 3.0).to(family.points)
    )


def test_names_say_what_is_decoupled():
    kernel = make_kernel("rq", 2, batch_shape=(1,))
    own = decoupled_kernel(kernel, ("alpha",))
    assert own.lengthscale is kernel.unit.lengthscale
    assert own.alpha is not kernel.unit.alpha
    assert torch.equal(own.alpha.value, kernel.unit.alpha.value)
    both = decoupled_kernel(kernel, ("alpha", "lengthscale"))
    assert not {id(parameter) for parameter in both.parameters()} & {id(parameter) for parameter in kernel.parameters()}


def test_a_kernel_without_these_hyperparameters_cannot_be_decoupled():
    with pytest.raises(ValueError, match="nothing to decouple"):
        decoupled_kernel(make_kernel("linear", 2))


@pytest.fixture
def small_blocks(monkeypatch):
    """A few rows are several blocks."""
    monkeypatch.setattr(block_inputs, "BLOCK", 30)
    monkeypatch.setattr(block_inputs, "LEAST", 8)


@pytest.fixture
def ways(monkeypatch):
    """The names of those that are gone."""
    names = []
    for name in ("_evaluate_in_blocks", "_evaluate_whole"):
        evaluate = getattr(Conditional, name)
        monkeypatch.setattr(
            Conditional, name, lambda *given, evaluate=evaluate, name=name: names.append(name) or evaluate(*given)
        )
    return names


def loss_and_gradients(problem, batch):
    loss = problem.loss(batch)
    return [loss, *torch.autograd.grad(loss, list(problem.parameters()), allow_unused=True)]


def all_close(found, expected, **tolerances):
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, **tolerances)


@all_weights
@pytest.mark.parametrize("kernel", ["matern52", "rbf"])
@pytest.mark.parametrize("omega", [{"with_omega": False}, {}, {"omega_draws": 4}], ids=["no Ω", "Ω", "Ω of draws"])
@pytest.mark.parametrize("size", [1, 2, 3], ids=["crew of one", "crew of two", "crew of three"])
def test_blocks_of_rows_are_all_rows(weights, kernel, omega, size, small_blocks, ways, monkeypatch):
    rows = random_rows(25, n_outputs=2, seed=31)
    problem = conditional_problem(rows, weights, kernel=kernel, n_points=6, seed=32, **omega)
    with crew(size):
        found = loss_and_gradients(problem, rows.whole())
    monkeypatch.setattr(block_inputs, "LEAST", 10**9)
    expected = loss_and_gradients(problem, rows.whole())
    assert ways == ["_evaluate_in_blocks", "_evaluate_whole"]
    all_close(found, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("with_omega", [True, False], ids=["Ω", "no Ω"])
def test_blocks_are_for_crews_and_machine_code(with_omega, small_blocks, ways):
    rows = random_rows(25, seed=31)
    problem = conditional_problem(rows, n_points=6, seed=32, with_omega=with_omega)
    problem.loss(rows.whole())
    with crew(2), without_machine_code():
        problem.loss(rows.whole())
    with crew(2):
        problem.loss(rows.whole())
    assert ways == ["_evaluate_whole", "_evaluate_whole", "_evaluate_in_blocks"]


def test_more_features_than_machine_code_takes(small_blocks, ways):
    rows = random_rows(40, n_features=33, seed=43)
    with crew(2):
        problem = conditional_problem(rows, points=rows.x[:6].clone()[None], jitter=1e-6, seed=44, with_omega=False)
        problem.loss(rows.whole()).backward()
    assert ways == ["_evaluate_whole"]


@pytest.mark.parametrize("size", [1, 2])
def test_nothing_is_kept_for_longer_than_it_is_needed(size, small_blocks, monkeypatch):
    """What is as long as a batch not after its gradients, though the loss is; and the rest not after the loss."""
    rows, made = random_rows(60, seed=45), []
    for kind in (blockwise_pair._Kernel, RelativeDivergence):
        begin = kind.__init__
        monkeypatch.setattr(
            kind, "__init__", lambda own, *given, begin=begin: made.append(weakref.ref(own)) or begin(own, *given)
        )
    problem = conditional_problem(rows, n_points=6, seed=46)
    gc.disable()
    try:
        with crew(size):
            loss = problem.loss(rows.whole())
            loss.backward()
        kernels = [kept() for kept in made if isinstance(kept(), blockwise_pair._Kernel)]
        assert len(kernels) == 2
        assert not any(hasattr(kernel, name) for kernel in kernels for name in ("kept", "pull", "sums", "total"))
        del loss, kernels
        assert [kept() for kept in made] == [None] * 3
    finally:
        gc.enable()


def test_gradients_are_not_begun_if_nobody_wants_them(small_blocks, monkeypatch):
    rows = random_rows(40, seed=47)
    problem, begun = conditional_problem(rows, n_points=6, seed=48), []
    for room in (relative_divergence, blockwise_omega):
        monkeypatch.setattr(room, "meanwhile", lambda work: begun.append(work) or work)
    with crew(2):
        with torch.no_grad():
            problem.loss(rows.whole())
        assert not begun
        problem.loss(rows.whole()).backward()
    assert len(begun) == 2


@pytest.mark.parametrize("n_rows", [200, 211])
def test_blocks_that_are_large_enough_for_panels(n_rows, ways, monkeypatch):
    """Several of them, and several blocks of the factor of a batch's covariance."""
    monkeypatch.setattr(block_inputs, "BLOCK", 4000)
    monkeypatch.setattr(block_inputs, "LEAST", 8)
    rows = random_rows(n_rows, n_features=3, seed=36, weighted=True)
    problem = conditional_problem(rows, n_points=70, jitter=1e-5, seed=37, omega_draws=30, omega_scale="n_over_b")
    batch = rows.batch(torch.arange(n_rows - 40))
    expected = loss_and_gradients(problem, batch)
    single = copy.deepcopy(problem).float()
    for size, threads_later in ((1, 2), (2, 2), (2, None), (3, 1)):
        with crew(size):
            loss = problem.loss(batch)
        for _ in range(2):
            # In another crew than the loss, and again.
            with crew(threads_later):
                kept = {"retain_graph": True, "allow_unused": True}
                found = [loss, *torch.autograd.grad(loss, list(problem.parameters()), **kept)]
            all_close(found, expected, rtol=1e-6, atol=1e-8)
        with crew(size):
            found = loss_and_gradients(single, rows.to(torch.float32).batch(torch.arange(n_rows - 40)))
        for one, other in zip(found, expected, strict=True):
            if other is not None:
                torch.testing.assert_close(
                    one.double(), other, rtol=0.02, atol=0.02 * float(other.detach().abs().max())
                )
    assert ways[0] == "_evaluate_whole"
    assert set(ways[1:]) == {"_evaluate_in_blocks"}


def test_blocks_of_several_chains(small_blocks, ways, draw):
    rows = random_rows(40, n_features=2, n_outputs=2, seed=38)
    kernel = make_kernel("matern52", 2, batch_shape=(3, 2))
    points = torch.stack([separated_points(5, 2, 2, torch.Generator().manual_seed(seed)) for seed in range(3)])
    family = Conditional(
        kernel, decoupled_kernel(kernel), make_mean("constant", 2, 2, (3,)), points, WEIGHTS["full"](5, (3, 2)), 1e-6
    ).double()
    with torch.no_grad():
        for parameter in family.parameters():
            parameter.add_(0.3 * draw(*parameter.shape))
    found = []
    for size in (None, 2):
        with crew(size):
            evaluation = family.evaluate(rows.whole())
            parts = [getattr(evaluation.marginal, part) for part in PARTS] + list(evaluation.penalties.values())
            total = sum(part.sin().sum() for part in parts)
            found.append([*parts, *torch.autograd.grad(total, list(family.parameters()))])
    assert ways == ["_evaluate_whole", "_evaluate_in_blocks"]
    all_close(*found, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("failures", [1, 2])
def test_where_rounding_leaves_no_covariance_the_floor_is_raised(failures, small_blocks, monkeypatch):
    """Tenfold, each time."""
    rows = random_rows(25, seed=39)
    problem = conditional_problem(rows, n_points=6, seed=40)
    factorise, calls = Bordered.factorise, []

    def fail_first(self):
        calls.append(factorise(self))
        return None if len(calls) <= failures else calls[-1]

    monkeypatch.setattr(Bordered, "factorise", fail_first)
    with crew(2), torch.no_grad():
        found = problem.family.evaluate(rows.whole()).penalties["omega"]
    problem.family.omega_floor *= 10.0**failures
    expected = problem.family.evaluate(rows.whole()).penalties["omega"].detach()
    torch.testing.assert_close(found, expected)


def test_a_batch_without_a_covariance_is_told_about(small_blocks, monkeypatch):
    rows = random_rows(25, seed=41)
    problem = conditional_problem(rows, n_points=6, seed=42)
    rows.x[3, 0] = torch.nan
    with crew(2), pytest.raises(NotPositiveDefinite, match="NaN"):
        problem.loss(rows.whole())


@whitenings
@pytest.mark.parametrize("weights", ["full", "diagonal"])
@pytest.mark.parametrize("size", [1, 2], ids=["crew of one", "crew of two"])
def test_all_rows_in_a_crew(weights, whiten, size):
    """As in small steps."""
    rows = random_rows(25, n_outputs=2, seed=34)
    problem = conditional_problem(rows, weights, n_points=6, whiten=whiten, seed=35)
    found = []
    for own in (None, size):
        with crew(own):
            loss = problem.loss(rows.whole())
            found.append([loss, *torch.autograd.grad(loss, list(problem.parameters()), allow_unused=True)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9)


def test_what_a_crew_can_share_out(small_blocks):
    """What machine code does with blocks of rows, for kernels without a network."""
    rows = random_rows(25, seed=33)
    assert conditional_problem(rows, with_omega=False, n_points=6).family.shares_rows(9)
    assert not conditional_problem(rows, with_omega=False, n_points=6).family.shares_rows(8)
    assert conditional_problem(rows, n_points=6).family.shares_rows(9)
    assert not conditional_problem(rows, with_omega=False, whiten="covariance", n_points=6).family.shares_rows(9)
    assert not conditional_problem(rows, kernel="rq", with_omega=False, n_points=6).family.shares_rows(9)
    with without_machine_code():
        assert not conditional_problem(rows, with_omega=False, n_points=6).family.shares_rows(9)
