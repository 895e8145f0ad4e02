"""Networks in front of kernels, and as mean functions: ``features`` and what goes with it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import candid
from candid import SparseGPRegressor, make_gp
from candid.estimators.fingerprint import checkpoint_of
from candid.estimators.inputs import Table
from candid.families import Centred, Conditional, Decoupled, Embedded, Inducing, NetworkMean
from candid.kernels import RBF, Deep, Network, networks_in
from candid.metrics import coverage, nll

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 3)) * [1.0, 50.0, 0.01] + [0.0, 1000.0, 5.0]
Y = 30.0 * np.sin(2 * X[:, 0]) + 0.1 * (X[:, 1] - 1000.0) + 3.0 * RNG.normal(size=300)
WIDTHS = (8, 4)
SPACES = ("input", "feature")


hasty = pytest.mark.usefixtures("hasty")


def fitted(**parameters) -> SparseGPRegressor:
    start = {"features": WIDTHS, "n_inducing": 15, "max_epochs": 3, "random_state": 0}
    return SparseGPRegressor(**{**start, **parameters}).fit(X, Y)


def family_of(gp: SparseGPRegressor):
    return gp._fitted.problem.family


class Squares(torch.nn.Module):
    """A module of somebody else's."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 5)

    def forward(self, x):
        return self.linear(x) + 0.1 * x.square().sum(-1, keepdim=True)


@hasty
@pytest.mark.parametrize(
    ("features", "width"), [(WIDTHS, 4), ([8, 4], 4), ("ppgpr", 64), (Network(WIDTHS), 4), (Squares(), 5)]
)
def test_what_can_be_a_network(features, width):
    kernel = family_of(fitted(features=features, max_epochs=1)).kernel
    assert isinstance(kernel, Deep)
    assert kernel.network.width == width


@hasty
@pytest.mark.parametrize("features", ["dkl", (8, 0), torch.nn.Linear(2, 4)])
def test_what_cannot(features):
    with pytest.raises(ValueError, match=r"network|take a table|layer"):
        fitted(features=features)


@hasty
def test_a_deep_kernel_may_be_given_as_the_kernel():
    one = fitted(features=None, kernel=Deep(WIDTHS, 1.0 * RBF()), max_epochs=2)
    family = family_of(one)
    assert isinstance(family.kernel, Deep)
    assert one.history_[-1]["loss"] < one.history_[0]["loss"]


@hasty
def test_inducing_points_are_rows_or_features():
    for space, width in zip(SPACES, (3, 4), strict=True):
        family = family_of(fitted(inducing_space=space, max_epochs=0))
        assert isinstance(family, Embedded if space == "feature" else Inducing)
        (points,) = family.point_parameters()
        assert points.shape == (1, 15, width)
    # Rows of the table, as the model sees it
    family = family_of(fitted(max_epochs=0, standardize=False))
    distances = torch.cdist(family.points[0].double(), torch.as_tensor(X))
    torch.testing.assert_close(distances.amin(-1), torch.zeros(15).double(), rtol=0, atol=1e-3)


@hasty
@pytest.mark.parametrize("space", SPACES)
def test_the_network_learns_with_weight_decay(space):
    def size(weight_decay: float) -> float:
        gp = fitted(inducing_space=space, init="kmeans", weight_decay=weight_decay, max_epochs=30)
        return sum(float(weight.detach().square().sum()) for weight in family_of(gp).kernel.network.parameters())

    assert size(1.0) < 0.8 * size(0.0)


@hasty
@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("init", ["warm", "kmeans", "random"])
def test_training_improves_the_objective(space, init):
    gp = fitted(inducing_space=space, init=init, max_epochs=10, objective="elbo", beta=1.0)
    assert gp.history_[-1]["loss"] < gp.history_[0]["loss"]


@hasty
@pytest.mark.parametrize("space", SPACES)
def test_a_warm_start_is_better_than_a_cold_one(space):
    warm, cold = (fitted(init=init, inducing_space=space, max_epochs=0) for init in ("warm", "kmeans"))
    assert warm.history_[0]["loss"] < cold.history_[0]["loss"] - 0.1


def test_restarts_begin_with_other_networks(monkeypatch):
    begun = []
    monkeypatch.setattr(
        "candid.estimators.start.fit_small",
        lambda family, *rest: begun.append([weight.clone() for weight in next(networks_in(family)).parameters()]),
    )
    fitted(n_restarts=2, max_epochs=1)
    first, second = begun
    assert not torch.equal(first[0], second[0])


@hasty
def test_both_kernels_may_share_a_network():
    for space in SPACES:
        gp = fitted(decouple="kernel", inducing_space=space)
        family = family_of(gp)
        inner = family.inner if isinstance(family, Embedded) else family
        assert isinstance(inner, Conditional)
        assert len(list(networks_in(family))) == 1
        assert isinstance(gp.mean_kernel_, Deep)
        assert not torch.equal(gp.mean_kernel_.base.lengthscale.value, gp.kernel_.base.unit.lengthscale.value)


@hasty
@pytest.mark.parametrize("objective", ["elbo", "predictive"])
def test_decoupled_networks_start_at_the_coupled_solution(objective):
    options = {"objective": objective, "max_epochs": 0, "dtype": "float64"}
    one, two = (fitted(decouple=decouple, **options).predict_distribution(X) for decouple in (None, "features"))
    np.testing.assert_allclose(two.mean, one.mean, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(two.std, one.std, rtol=1e-6)


@hasty
def test_decoupled_networks_part_company_and_share_the_rest():
    gp = fitted(decouple="features", max_epochs=5)
    family = family_of(gp)
    own, other = family.mean_kernel, family.kernel
    assert not torch.equal(next(own.network.parameters()), next(other.network.parameters()))
    assert own.base.lengthscale is other.base.unit.lengthscale


@hasty
def test_the_covariance_may_have_another_network_or_none():
    family = family_of(fitted(decouple="features", covariance_features=None))
    assert not any(networks_in(family.kernel))
    assert family.mean_kernel.network.width == 4
    family = family_of(fitted(decouple="features", covariance_features=(2,)))
    assert (family.kernel.network.width, family.mean_kernel.network.width) == (2, 4)


@pytest.mark.parametrize("objective", ["elbo", "predictive"])
def test_a_network_as_the_mean(objective):
    gp = fitted(decouple="mean", objective=objective, features=(32, 32), max_epochs=5)
    family = family_of(gp)
    assert isinstance(family, Centred)
    assert isinstance(family.mean, NetworkMean)
    assert not any(networks_in(family.kernel))
    torch.testing.assert_close(family.weights.mean, torch.zeros(1, 15))
    with torch.no_grad():
        x = torch.as_tensor((X - X.mean(0)) / X.std(0))
        expected = family.mean.double()(x).numpy()[:, 0] * Y.std() + Y.mean()
    np.testing.assert_allclose(gp.predict(X), expected, rtol=1e-5)
    assert gp.score(X, Y) > 0.5


@hasty
def test_inducing_points_of_the_mean_in_feature_space():
    family = family_of(fitted(decouple="inducing", covariance="diagonal", inducing_space="feature", n_mean_inducing=9))
    assert isinstance(family.inner, Decoupled)
    assert (family.inner.points.shape, family.inner.mean_points.shape) == ((1, 15, 4), (1, 9, 4))


@hasty
@pytest.mark.parametrize("space", SPACES)
def test_the_kernel_in_the_units_of_the_table(space):
    gp = fitted(inducing_space=space)
    x = torch.as_tensor(X[:20])
    standardised = (x - torch.as_tensor(X.mean(0))) / torch.as_tensor(X.std(0))
    inside = family_of(gp).kernel.double()
    with torch.no_grad():
        expected = Y.std() ** 2 * inside(standardised)[0]
        torch.testing.assert_close(gp.kernel_(x)[0], expected, rtol=1e-4, atol=1e-4 * float(expected.max()))


SHAPES = [
    {},
    {"inducing_space": "feature"},
    {"inducing_space": "feature", "decouple": "kernel"},
    {"decouple": "features"},
    {"decouple": "features", "covariance_features": None},
    {"decouple": "mean"},
]


@hasty
@pytest.mark.parametrize("parameters", SHAPES, ids=str)
def test_saved_loaded_and_gone_on_with(parameters, tmp_path):
    gp = fitted(**parameters)
    gp.save(tmp_path / "model.candid")
    again = candid.load(tmp_path / "model.candid")
    np.testing.assert_array_equal(again.predict(X, return_std=True), gp.predict(X, return_std=True))
    assert again.get_params() == gp.get_params()
    assert hasattr(again, "mean_kernel_") is hasattr(gp, "mean_kernel_")
    before = {name: tensor.clone() for name, tensor in family_of(gp).state_dict().items()}
    gp.set_params(max_epochs=0).partial_fit(X[:20], Y[:20])
    for name, tensor in family_of(gp).state_dict().items():
        torch.testing.assert_close(tensor, before[name], msg=f"{name} has changed")


@hasty
def test_networks_of_others_are_saved_without_their_code(tmp_path):
    gp = fitted(features=Squares(), decouple="features", covariance_features=torch.nn.Linear(3, 2))
    gp.save(tmp_path / "model.candid")
    with pytest.raises(ValueError, match="features="):
        candid.load(tmp_path / "model.candid")
    again = candid.load(tmp_path / "model.candid", features=[Squares(), torch.nn.Linear(3, 2)])
    np.testing.assert_array_equal(again.predict(X), gp.predict(X))
    with pytest.raises(ValueError, match="network"):
        candid.load(tmp_path / "model.candid", features=torch.nn.Linear(3, 7))


@hasty
def test_several_outputs():
    gp = SparseGPRegressor(features=WIDTHS, n_inducing=10, max_epochs=2, random_state=0)
    gp.fit(X, np.column_stack([Y, -Y]))
    assert gp.predict(X).shape == (300, 2)
    assert len(list(networks_in(family_of(gp)))) == 1


@hasty
@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"decouple": "features", "features": None}, "needs a network"),
        ({"decouple": "mean", "features": None}, "needs a network"),
        ({"inducing_space": "feature", "features": None}, "needs a network"),
        ({"covariance_features": None}, "decouple='features'"),
        ({"decouple": "features", "inducing_space": "feature"}, "inducing_space='input'"),
        ({"inducing_space": "feature", "init": X[:5]}, "inducing_space='input'"),
        ({"objective": "sgpr"}, "objective='elbo'"),
    ],
)
def test_what_does_not_go_together(parameters, says):
    with pytest.raises(ValueError, match=says):
        fitted(**parameters)


@hasty
def test_parameters_that_shape_the_model_must_stay():
    gp = fitted()
    with pytest.raises(ValueError, match="features has changed"):
        gp.set_params(features=(3,)).partial_fit(X[:5], Y[:5])


@hasty
def test_known_noise_and_weights():
    gp = SparseGPRegressor(features=WIDTHS, n_inducing=10, max_epochs=2, random_state=0, alpha=np.linspace(1, 9, 300))
    gp.fit(X, Y, sample_weight=np.arange(300) % 3)
    assert np.isfinite(gp.predict(X, return_std=True)).all()


@hasty
def test_a_checkpoint_belongs_to_a_network(tmp_path):
    def broken_off(**parameters):
        def stop(record):
            if record["epoch"] == 1:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            fitted(checkpoint_dir=str(tmp_path), callbacks=(stop,), **parameters)

    whole = fitted(checkpoint_dir=str(tmp_path / "whole"))
    broken_off()
    again = fitted(checkpoint_dir=str(tmp_path))
    np.testing.assert_array_equal(again.predict(X), whole.predict(X))


def test_a_checkpoint_knows_the_code_of_a_network(tmp_path):
    def network(activation):
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(X.shape[1], 4), activation(), torch.nn.Linear(4, 2))

    def key(activation):
        gp = make_gp("svgp-dkl", features=network(activation), checkpoint_dir=str(tmp_path))
        return checkpoint_of(gp, Table(X, Y[:, None], np.ones(len(X)), None, vector=True), []).path

    assert key(torch.nn.Tanh) == key(torch.nn.Tanh) != key(torch.nn.ReLU)


@pytest.mark.parametrize("name", ["svgp-dkl", "ppgpr-dkl", "svgp-dcdkl", "ppgpr-meandkl", "nnppgpr"])
def test_a_short_table_is_not_learned_by_heart(name):
    random = np.random.default_rng(3)
    rows = random.normal(size=(400, 10))
    targets = rows[:, 0] + random.normal(size=400)
    gp = make_gp(name, n_inducing=30, features=(64, 64, 16), random_state=0).fit(rows[:200], targets[:200])
    prediction = gp.predict_distribution(rows[200:])
    # A model that knew nothing but mean and variance of the targets would have 1.77 and 0.9.
    assert nll(targets[200:], prediction) < 1.9
    assert coverage(targets[200:], prediction, 0.9) > 0.6
