from __future__ import annotations

import copy
import json
import pickle

import pytest
import torch

from candid.engines import Checkpoint, Plan, Rows, train
from candid.families import Neighbours, make_mean, predictor_from_spec
from candid.families.metric import metric_of
from candid.kernels import RBF, make_kernel
from candid.likelihoods import Gaussian
from candid.marginal import Batch
from candid.objectives import predictive
from fragile import FragileCheckpoint, Interrupted
from small_models import exact_problem, neighbour_problem, random_rows

NEW = random_rows(7, seed=99).x


def by_dense_algebra(problem, rows, x, near):
    """Latent mean and variance of each row of ``x`` given the training rows that ``near`` has for it."""
    family, k = problem.family, problem.family.kernel
    noise = problem.likelihood.at(torch.arange(len(rows))).variance.expand_as(rows.y) / rows.weight.unsqueeze(-1)
    means, variances = [], []
    for row, others in zip(x.split(1), near, strict=True):
        points = rows.x[others]
        gain = torch.linalg.solve(k(points) + torch.diag_embed(noise[others].mT), k(points, row)).mT
        residual = (rows.y[others] - family.mean(points)).mT.unsqueeze(-1)
        means.append(family.mean(row) + (gain @ residual).squeeze(-1).mT)
        variances.append((k(row) - gain @ k(points, row)).squeeze(-1).mT)
    return torch.cat(means), torch.cat(variances)


def nearest_by_sorting(family, rows, x, k, itself=None):
    scale = metric_of(family.kernel, rows.x.shape[1])
    distances = ((rows.x / scale).unsqueeze(0) - (x / scale).unsqueeze(1)).square().sum(-1)
    if itself is not None:
        distances[torch.arange(len(x)), itself] = torch.inf
    return distances.argsort(-1)[:, :k]


SETTINGS = {
    "plain": ({}, {}),
    "one neighbour": ({}, {"k": 1}),
    "weights, two outputs": ({"weighted": True, "n_outputs": 2}, {"mean": "linear"}),
    "sum of kernels": ({"n_outputs": 2}, {"kernel": "rbf + matern32 + linear"}),
    "no lengthscale": ({}, {"kernel": "linear", "mean": "zero"}),
    "known noise": ({"weighted": True}, {"known": torch.linspace(0.01, 0.5, 20).double().unsqueeze(-1)}),
    "one feature": ({"n_features": 1}, {}),
}


@pytest.fixture(params=SETTINGS.values(), ids=SETTINGS)
def setting(request):
    rows = random_rows(20, seed=1, **request.param[0])
    return rows, neighbour_problem(rows, seed=2, **request.param[1])


class TestMarginals:
    def test_of_training_rows(self, setting):
        """Values and gradients with respect to every parameter; a row is not its own neighbour."""
        rows, problem = setting
        family, index = problem.family, torch.tensor([3, 0, 11, 19])
        batch = rows.batch(index)
        near = nearest_by_sorting(family, rows, batch.x, family.n_neighbours, index)
        mean, variance = by_dense_algebra(problem, rows, batch.x, near)
        evaluation = family.evaluate(batch)
        torch.testing.assert_close(evaluation.marginal.mean, mean)
        torch.testing.assert_close(evaluation.marginal.residual, variance)
        assert (evaluation.marginal.spread == 0).all()
        assert not evaluation.penalties
        terms = problem.likelihood.at(index).log_expected_density(batch.y, mean, variance).sum(-1)
        loss = -(batch.weight @ terms) / batch.weight.sum()
        torch.testing.assert_close(problem.loss(batch), loss)
        learned = problem.groups()["all"]
        found, expected = (torch.autograd.grad(value, learned) for value in (problem.loss(batch), loss))
        torch.testing.assert_close(found, expected)

    def test_of_other_rows(self, setting):
        """Neighbours are then any training rows; the predictor does the same."""
        rows, problem = setting
        family, x = problem.family, NEW[:, : rows.x.shape[1]]
        near = nearest_by_sorting(family, rows, x, family.n_neighbours)
        mean, variance = by_dense_algebra(problem, rows, x, near)
        batch = Batch(x, rows.y[: len(x)], rows.weight[: len(x)], rows.total)
        for marginal in (family.evaluate(batch).marginal, family.predictor().marginal(x)):
            torch.testing.assert_close(marginal.mean, mean)
            torch.testing.assert_close(marginal.variance, variance)

    @pytest.mark.parametrize("k", [11, 50])
    def test_all_neighbours_leave_one_out(self, k):
        """With α = C⁻¹(y − mu): mean_i = y_i − α_i/[C⁻¹]_ii, variance of y_i = 1/[C⁻¹]_ii."""
        rows = random_rows(12, n_outputs=2, seed=3, weighted=True)
        problem = neighbour_problem(rows, k, seed=4)
        exact = exact_problem(rows, seed=4).family
        noise = problem.likelihood.noise.value / rows.weight.unsqueeze(-1)
        inverse = torch.linalg.inv(exact.kernel(rows.x) + torch.diag_embed(noise.mT))
        alpha = (inverse @ (rows.y - exact.mean(rows.x)).mT.unsqueeze(-1)).squeeze(-1)
        precision = inverse.diagonal(dim1=-2, dim2=-1)
        marginal = problem.family.evaluate(rows.whole()).marginal
        torch.testing.assert_close(marginal.mean, rows.y - (alpha / precision).mT)
        torch.testing.assert_close(marginal.residual + noise, (1 / precision).mT)

    def test_groups_make_no_difference(self, setting, monkeypatch):
        rows, problem = setting
        together = problem.family.evaluate(rows.whole()).marginal
        monkeypatch.setattr("candid.families.local.GROUP_ENTRIES", 100)
        apart = problem.family.evaluate(rows.whole()).marginal
        torch.testing.assert_close(apart.mean, together.mean)
        torch.testing.assert_close(apart.residual, together.residual)

    def test_a_single_row_has_nothing_but_the_prior(self):
        rows = random_rows(1, seed=5)
        family = neighbour_problem(rows, seed=6).family
        marginal = family.evaluate(rows.whole()).marginal
        assert torch.equal(marginal.mean, family.mean(rows.x))
        assert torch.equal(marginal.residual, family.kernel.diagonal(rows.x).mT)
        assert family.predictor().marginal(rows.x).variance < marginal.residual

    def test_twins_with_hardly_any_noise(self):
        rows = random_rows(10, seed=7)
        rows = Rows(rows.x.repeat(5, 1), rows.y.repeat(5, 1), rows.weight.repeat(5))
        known = torch.full((50, 1), 1e-18, dtype=torch.float64)
        problem = neighbour_problem(rows, 6, "rbf", known=known, seed=8)
        marginal = problem.family.evaluate(rows.whole()).marginal
        assert problem.family.jitter > 0
        torch.testing.assert_close(marginal.mean, rows.y, rtol=0, atol=1e-3)
        assert (marginal.residual >= 0).all()
        gradients = torch.autograd.grad(problem.loss(rows.whole()), list(problem.family.kernel.parameters()))
        assert all(torch.isfinite(gradient).all() for gradient in gradients)

    def test_jitter_to_start_with(self):
        rows = random_rows(15, seed=9)
        problem = neighbour_problem(rows, seed=10, jitter=0.1)
        found = problem.family.evaluate(rows.whole()).marginal
        assert (problem.family.jitter == 0.1).all()
        # A share of the mean of the diagonal of K + diag(σ²/s), which counts as noise.
        scale, noise = problem.family.kernel.amplitude.value.item(), problem.likelihood.noise.value.item()
        known = torch.full((15, 1), noise + 0.1 * (scale + noise), dtype=torch.float64)
        other = neighbour_problem(rows, seed=10, known=known)
        other.family.kernel.load_state_dict(problem.family.kernel.state_dict())
        other.family.mean.load_state_dict(problem.family.mean.state_dict())
        other.family.refresh(0)
        expected = other.family.evaluate(rows.whole()).marginal
        torch.testing.assert_close(found.mean, expected.mean)
        torch.testing.assert_close(found.residual, expected.residual)

    def test_single_precision(self):
        rows = random_rows(40, 3, seed=11)
        problem = neighbour_problem(rows, 10, seed=12)
        expected = problem.loss(rows.whole())
        found = problem.float().loss(rows.to(torch.float32).whole())
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)


def repeated(rows: Rows) -> Rows:
    """Every row as often as its weight says."""
    index = torch.repeat_interleave(torch.arange(len(rows)), rows.weight.long())
    return Rows(rows.x[index], rows.y[index], torch.ones(len(index), dtype=torch.float64))


class TestCopies:
    """A row of weight w is w identical rows, of which w − 1 stay when one is left out."""

    @pytest.mark.parametrize("n_outputs", [1, 2])
    def test_a_weighted_row_is_a_row_that_occurs_so_often(self, n_outputs):
        rows = random_rows(9, n_outputs=n_outputs, seed=30, weighted=True)
        assert 1 in rows.weight
        problem = neighbour_problem(rows, 50, seed=31, with_copies=True)
        table = repeated(rows)
        other = neighbour_problem(table, 50, seed=31)
        found, expected = problem.loss(rows.whole()), other.loss(table.whole())
        torch.testing.assert_close(found, expected)
        gradients = [
            torch.autograd.grad(loss, of.groups()["all"]) for loss, of in ((found, problem), (expected, other))
        ]
        torch.testing.assert_close(*gradients)

    def test_copies_do_not_count_among_the_neighbours(self):
        rows = random_rows(12, seed=32)
        weight = torch.ones(12).double()
        weight[3] = 3.0
        heavy = Rows(rows.x, rows.y, weight)
        problem = neighbour_problem(heavy, 4, seed=33, with_copies=True)
        marginal = problem.family.evaluate(heavy.batch(torch.tensor([3, 4]))).marginal
        near = problem.family.rows.nearest(rows.x[[3]], 4, torch.tensor([3]))
        twins = rows.subset(torch.cat([torch.tensor([3, 3]), near[0]]))
        mean, variance = by_dense_algebra(problem, twins, rows.x[[3]], torch.arange(6).unsqueeze(0))
        torch.testing.assert_close(marginal.mean[:1], mean)
        torch.testing.assert_close(marginal.residual[:1], variance)

    def test_without_heavy_rows_nothing_changes(self):
        rows = random_rows(12, seed=34)
        ours, theirs = (neighbour_problem(rows, 4, seed=35, with_copies=copies) for copies in (True, False))
        assert torch.equal(ours.loss(rows.whole()), theirs.loss(rows.whole()))
        light = Rows(rows.x, rows.y, torch.full((12,), 0.3).double())
        ours, theirs = (neighbour_problem(light, 4, seed=35, with_copies=copies) for copies in (True, False))
        assert torch.equal(ours.loss(light.whole()), theirs.loss(light.whole()))


class TestGroups:
    @pytest.fixture
    def grouped(self):
        rows = random_rows(20, n_outputs=2, seed=36, weighted=True)
        return rows, neighbour_problem(rows, 5, seed=37, objective="marginal_likelihood")

    def test_each_row_with_its_neighbours(self, grouped):
        rows, problem = grouped
        index = torch.tensor([3, 0, 11])
        group = problem.family.groups(rows.batch(index))
        others = nearest_by_sorting(problem.family, rows, rows.x[index], 4, index)
        assert torch.equal(group.index, torch.cat([index.unsqueeze(-1), others], -1))
        assert torch.equal(group.x, rows.x[group.index])
        assert torch.equal(group.y, rows.y[group.index])
        assert torch.equal(group.weight, rows.weight[group.index])

    def test_the_loss_is_the_average_of_their_densities_per_row(self, grouped):
        rows, problem = grouped
        batch = rows.batch(torch.tensor([3, 0, 11]))
        losses = []
        for index in problem.family.groups(batch).index:
            group = rows.subset(index)
            exact = exact_problem(group)
            exact.family.kernel, exact.family.mean = problem.family.kernel, problem.family.mean
            exact.likelihood = problem.likelihood
            losses.append(exact.loss(group.whole()))
        expected = batch.weight @ torch.stack(losses) / batch.weight.sum()
        found, learned = problem.loss(batch), problem.groups()["all"]
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(torch.autograd.grad(found, learned), torch.autograd.grad(expected, learned))

    def test_groups_of_one(self):
        """log N(y; mu, k(x, x) + σ²)"""
        rows = random_rows(10, seed=38)
        problem = neighbour_problem(rows, 1, seed=39, objective="marginal_likelihood")
        family = problem.family
        total = family.kernel.diagonal(rows.x).mT + problem.likelihood.noise.value
        expected = torch.distributions.Normal(family.mean(rows.x), total.sqrt()).log_prob(rows.y).mean()
        torch.testing.assert_close(problem.loss(rows.whole()), -expected)

    def test_some_rows_say_where_a_run_stands(self, grouped, monkeypatch):
        rows, problem = grouped
        monkeypatch.setattr("candid.engines.problem.STANDING_ROWS", 10)
        expected = problem.loss(rows.batch(torch.arange(0, 20, 2))).item()
        assert problem.standing(rows, 3) == pytest.approx(expected)


class TestMetric:
    def test_of_one_kernel_it_is_the_lengthscale(self):
        assert metric_of(RBF([0.5, 2.0, 3.0]).build(3), 3).tolist() == pytest.approx([0.5, 2.0, 3.0])
        assert metric_of(make_kernel(1.5 * RBF(0.7), 2, ard=False), 2).tolist() == pytest.approx([0.7, 0.7])

    def test_the_shortest_of_several_decides(self):
        kernel = make_kernel(RBF([1.0, 1e4]) + 0.1 * RBF([1e3, 2.0]), 2)
        assert metric_of(kernel, 2).tolist() == pytest.approx([2**0.5, 2 * 2**0.5], rel=1e-5)
        two_outputs = make_kernel("matern52", 2, batch_shape=(2,))
        two_outputs.base.lengthscale.set(torch.tensor([[[1.0, 3.0]], [[1.0, 4.0]]]))
        assert metric_of(two_outputs, 2).tolist() == pytest.approx([1.0, (2 / (1 / 9 + 1 / 16)) ** 0.5])

    def test_without_lengthscales_inputs_are_as_they_are(self):
        """The lengthscale of a periodic kernel is a share of its period, not a length."""
        assert metric_of(make_kernel("linear + periodic", 3), 3).tolist() == [1.0, 1.0, 1.0]

    def test_extreme_lengthscales(self):
        kernel = make_kernel(RBF([1e-30, 1e30]), 2)
        assert metric_of(kernel, 2).tolist() == pytest.approx([1e-30, 1e30], rel=1e-4)
        rows = random_rows(30, seed=27)
        family = neighbour_problem(rows, 3).float().family
        family.kernel.base.lengthscale.set(torch.tensor([1e-38, 1e38]))
        family.refresh(0)
        expected = (rows.x[:, None, 0] - rows.x[:, 0]).abs().argsort(-1)[:, :3]
        assert torch.equal(family.rows.nearest(rows.x.float(), 3), expected)

    def test_it_follows_the_lengthscales_every_few_steps(self):
        rows = random_rows(30, seed=13)
        family = neighbour_problem(rows, 3, seed=14, refresh_every=5).family
        before = family.rows.nearest(rows.x, 3)
        family.kernel.base.lengthscale.set(torch.tensor([0.1, 10.0]))
        for step in (1, 4, 6):
            family.refresh(step)
            assert torch.equal(family.rows.nearest(rows.x, 3), before)
        family.refresh(10)
        after = family.rows.nearest(rows.x, 3)
        assert not torch.equal(after, before)
        assert torch.equal(after, nearest_by_sorting(family, rows, rows.x, 3))

    def test_neighbours_come_back_with_the_state(self):
        """Those of the last refresh, not those that the present lengthscales would give."""
        rows = random_rows(30, seed=15)
        problem = neighbour_problem(rows, 3, seed=16)
        with torch.no_grad():
            problem.family.kernel.base.lengthscale.raw.add_(torch.tensor([2.0, -2.0]))
        state = {name: tensor.clone() for name, tensor in problem.state_dict().items()}
        expected = problem.loss(rows.whole())
        again = neighbour_problem(rows, 3, seed=17)
        again.loss(rows.whole())
        again.load_state_dict(state)
        assert torch.equal(again.loss(rows.whole()), expected)
        problem.family.refresh(0)
        assert not torch.equal(problem.loss(rows.whole()), expected)

    def test_a_killed_run_goes_on_with_the_same_neighbours(self, tmp_path):
        """Killed between two refreshes and just before one."""
        rows, plan = random_rows(30, seed=25), Plan({"all": "adam"}, max_epochs=3, batch_size=8, lr=0.5)

        def run(checkpoint=None):
            problem = neighbour_problem(rows, 3, seed=26, refresh_every=3)
            train(problem, rows, plan, checkpoint=checkpoint)
            return problem.state_dict()

        expected = run()
        for last in (4, 6):
            with pytest.raises(Interrupted):
                run(FragileCheckpoint(tmp_path / str(last), last))
            found = run(Checkpoint(tmp_path / str(last)))
            assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())

    @pytest.mark.parametrize("search", ["exact", "hnsw"])
    def test_copies_and_pickles_make_their_own_index(self, search):
        rows = random_rows(100, seed=28)
        searched = neighbour_problem(rows, 3, search=search).family.rows
        expected = searched.nearest(rows.x, 3)
        for copied in (copy.deepcopy(searched), pickle.loads(pickle.dumps(searched))):
            assert copied._index is None
            assert torch.equal(copied.nearest(rows.x, 3), expected)

    def test_a_graph_instead_of_exact_search(self):
        rows = random_rows(400, seed=29)
        exact, graph = (neighbour_problem(rows, 5, search=search).family for search in ("exact", "hnsw"))
        assert exact.rows.recall(5) == 1.0
        assert 0.9 < graph.rows.recall(5) <= 1.0
        for family in (exact, graph):
            assert predictor_from_spec(family.predictor().to_spec()).rows.search == family.rows.search
        torch.testing.assert_close(graph.predictor().marginal(NEW).mean, exact.predictor().marginal(NEW).mean)

    def test_an_unknown_search(self):
        with pytest.raises(ValueError, match="unknown search 'fast'; choose one of exact, hnsw"):
            neighbour_problem(random_rows(10), search="fast")

    def test_the_rows_are_not_part_of_the_state(self):
        state = neighbour_problem(random_rows(30)).family.state_dict()
        assert "rows.metric" in state
        assert not any(tensor.shape[:1] == (30,) for tensor in state.values())


class TestChains:
    """Leading dimensions are models side by side: whatever is computed together is what each would compute alone."""

    ROWS = random_rows(15, n_outputs=2, seed=18)

    def family(self, chains: tuple[int, ...], kernel: str, mean: str) -> Neighbours:
        return Neighbours(
            make_kernel(kernel, 2, batch_shape=(*chains, 2)),
            make_mean(mean, 2, 2, chains),
            self.ROWS.x,
            Gaussian(0.1, 2).double().sites(self.ROWS.y),
            self.ROWS.weight,
            4,
        ).double()

    @pytest.mark.parametrize(
        ("kernel", "mean"), [("matern52", "constant"), ("rbf + linear", "linear"), ("rbf", "zero")]
    )
    @pytest.mark.parametrize("shared", [True, False])
    def test_marginals_and_gradients(self, kernel, mean, shared, draw):
        together, single = self.family((3,), kernel, mean), [self.family((), kernel, mean) for _ in range(3)]
        with torch.no_grad():
            for parameter in (*together.kernel.parameters(), *together.mean.parameters()):
                parameter.add_(0.3 * draw(*parameter.shape))
        together.refresh(0)
        for chain, family in enumerate(single):
            own = family.state_dict()
            parts = {name: t if t.shape == own[name].shape else t[chain] for name, t in together.state_dict().items()}
            family.load_state_dict(parts)
        x = self.ROWS.x if shared else draw(3, 15, 2)
        noise, pull = Gaussian(0.1, 2).double().at(None), draw(3, 15)
        index = torch.arange(15) if shared else None
        marginal = together.evaluate(Batch(x, self.ROWS.y, self.ROWS.weight, 15.0, index)).marginal
        assert marginal.mean.shape == marginal.spread.shape == (3, 15, 2)
        learned = [p for p in (*together.kernel.parameters(), *together.mean.parameters()) if p.requires_grad]
        found = torch.autograd.grad((pull * predictive(marginal, noise, self.ROWS.y)).sum(), learned)
        predictor = together.predictor()
        predicted, joint = predictor.marginal(x), predictor.joint(x)
        assert joint.mean.shape == (3, 15, 2)
        for chain, family in enumerate(single):
            row = x if shared else x[chain]
            own = family.evaluate(Batch(row, self.ROWS.y, self.ROWS.weight, 15.0, index)).marginal
            torch.testing.assert_close(marginal.mean[chain], own.mean)
            torch.testing.assert_close(marginal.residual[chain], own.residual)
            learned = [p for p in (*family.kernel.parameters(), *family.mean.parameters()) if p.requires_grad]
            expected = torch.autograd.grad(pull[chain] @ predictive(own, noise, self.ROWS.y), learned)
            torch.testing.assert_close(tuple(gradient[chain] for gradient in found), expected)
            # A predictor has the metric of its own kernel, but sees what it sees through the same formulas.
            other = family.predictor()
            other.rows.metric.copy_(predictor.rows.metric)
            torch.testing.assert_close(predicted.mean[chain], other.marginal(row).mean)
            torch.testing.assert_close(predicted.residual[chain], other.marginal(row).residual)


class TestPredictor:
    @pytest.fixture
    def predictor(self, setting):
        return setting[1].family.predictor()

    @pytest.fixture
    def new(self, setting):
        return NEW[:, : setting[0].x.shape[1]]

    @pytest.mark.parametrize("k", [12, 40])
    @pytest.mark.parametrize("kernel", ["matern52", "rbf + matern32"])
    def test_with_all_rows_it_is_the_exact_gp(self, k, kernel):
        rows = random_rows(12, n_outputs=2, seed=19, weighted=True)
        ours = neighbour_problem(rows, k, kernel, mean="linear", seed=20).family.predictor()
        exact = exact_problem(rows, kernel, mean="linear", seed=20).family.predictor()
        torch.testing.assert_close(ours.marginal(NEW).mean, exact.marginal(NEW).mean)
        torch.testing.assert_close(ours.marginal(NEW).variance, exact.marginal(NEW).variance)
        torch.testing.assert_close(ours.joint(NEW).mean, exact.joint(NEW).mean)
        torch.testing.assert_close(ours.joint(NEW).covariance, exact.joint(NEW).covariance)

    def test_the_joint_sees_the_neighbours_of_all(self, setting):
        rows, problem = setting
        x = NEW[:2, : rows.x.shape[1]]
        union = nearest_by_sorting(problem.family, rows, x, problem.family.n_neighbours).unique()
        mean, variance = by_dense_algebra(problem, rows, x, union.expand(2, -1))
        joint = problem.family.predictor().joint(x)
        torch.testing.assert_close(joint.mean, mean)
        torch.testing.assert_close(joint.covariance.diagonal(dim1=-2, dim2=-1).mT, variance)
        assert torch.equal(joint.covariance, joint.covariance.mT)

    def test_the_joint_of_too_many_rows_is_refused(self, setting, monkeypatch):
        rows, problem = setting
        monkeypatch.setattr("candid.families.nearby_predictor.MOST_TOGETHER", 15)
        problem.family.n_neighbours = 8
        predictor = problem.family.predictor()
        predictor.joint(rows.x[:1])
        with pytest.raises(ValueError, match=r"joint prediction of 20 rows .*20 training rows.*fewer rows at a time"):
            predictor.joint(rows.x)

    def test_more_rows_may_join(self, setting, new):
        """As if they had been there from the beginning."""
        family = setting[1].family
        predictor, fewer = family.predictor(), family.predictor()
        fewer.marginal(new)
        fewer.rows.x, fewer.targets, fewer.noise = fewer.rows.x[:12], fewer.targets[:12], fewer.noise[:12]
        fewer.append(predictor.rows.x[12:], predictor.targets[12:], predictor.noise[12:])
        assert torch.equal(fewer.marginal(new).mean, predictor.marginal(new).mean)
        assert torch.equal(fewer.marginal(new).variance, predictor.marginal(new).variance)

    def test_the_joint_of_one_row_is_its_marginal(self, predictor, new):
        marginal, joint = predictor.marginal(new[:1]), predictor.joint(new[:1])
        torch.testing.assert_close(joint.mean, marginal.mean)
        torch.testing.assert_close(joint.covariance.squeeze(-1).mT, marginal.variance)

    def test_the_mean_alone(self, predictor, new):
        alone = predictor.marginal(new, mean_only=True)
        assert torch.equal(alone.mean, predictor.marginal(new).mean)
        assert (alone.variance == 0).all()

    def test_one_row_and_a_batch_agree(self, predictor, new):
        together = predictor.marginal(new)
        for position in range(len(new)):
            alone = predictor.marginal(new[position : position + 1])
            torch.testing.assert_close(alone.mean[0], together.mean[position], rtol=1e-10, atol=1e-10)
            torch.testing.assert_close(alone.variance[0], together.variance[position], rtol=1e-10, atol=1e-10)

    def test_no_rows(self, predictor, new):
        assert predictor.marginal(new[:0]).mean.shape == (0, predictor.targets.shape[1])

    def test_gradients_with_respect_to_inputs(self, predictor, new):
        def numbers(x):
            marginal, joint = predictor.marginal(x), predictor.joint(x)
            return marginal.mean, marginal.residual, joint.mean, joint.covariance

        assert torch.autograd.gradcheck(numbers, (new[:3].clone().requires_grad_(),))

    def test_rebuilt_from_json_and_tensors(self, predictor, new):
        again = predictor_from_spec(json.loads(json.dumps(predictor.to_spec())))
        again.load_state_dict(predictor.state_dict(), assign=True)
        ours, theirs = again.marginal(new), predictor.marginal(new)
        assert torch.equal(ours.mean, theirs.mean)
        assert torch.equal(ours.residual, theirs.residual)
        assert torch.equal(again.joint(new).covariance, predictor.joint(new).covariance)
        assert not any(parameter.requires_grad for parameter in again.parameters())

    def test_an_incomplete_description_is_refused(self, predictor):
        spec = predictor.to_spec()
        del spec["n_neighbours"]
        with pytest.raises(ValueError, match="a predictor of kind 'neighbours' is described by"):
            predictor_from_spec(spec)

    def test_it_shares_nothing_with_its_family_and_is_double(self):
        rows = random_rows(20, seed=21)
        problem = neighbour_problem(rows, seed=22).float()
        predictor = problem.family.predictor()
        assert all(tensor.dtype == torch.float64 for tensor in predictor.state_dict().values())
        before = predictor.marginal(NEW)
        with torch.no_grad():
            for tensor in (*problem.parameters(), *problem.buffers()):
                tensor.add_(0.1)
        after = predictor.marginal(NEW)
        assert torch.equal(before.mean, after.mean)
        assert torch.equal(before.variance, after.variance)

    def test_the_metric_is_that_of_the_present_lengthscales(self):
        rows = random_rows(30, seed=23)
        family = neighbour_problem(rows, 3, seed=24).family
        family.kernel.base.lengthscale.set(torch.tensor([0.1, 10.0]))
        predictor = family.predictor()
        assert torch.equal(predictor.rows.nearest(NEW, 3), nearest_by_sorting(family, rows, NEW, 3))
        assert not torch.equal(predictor.rows.nearest(NEW, 3), family.rows.nearest(NEW, 3))
