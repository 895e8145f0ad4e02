"""Model files: what was saved predicts as before; what is no model, or a hostile one, is refused."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from candid import SparseGPRegressor, load, make_gp
from candid.estimators import files
from candid.estimators.files import ModelFileError
from candid.kernels import RBF, Linear, Matern52, Periodic
from candid.priors import Gamma, Interval, LogNormal


def assert_same_predictions(gp, again, X):
    np.testing.assert_array_equal(gp.predict(X), again.predict(X))
    for options in ({"return_std": True}, {"return_cov": True}):
        for ours, theirs in zip(gp.predict(X, **options), again.predict(X, **options), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(gp.sample_y(X, 3), again.sample_y(X, 3))


def saved_and_loaded(gp, path):
    gp.save(path)
    return load(path)


def test_every_method_predicts_bit_for_bit_as_before(model, new_rows, tmp_path):
    again = saved_and_loaded(model, tmp_path / "model.candid")
    assert type(again) is type(model)
    assert_same_predictions(model, again, new_rows[0])
    assert again.noise_ == model.noise_
    assert again.history_ == model.history_
    assert again.jitter_ == model.jitter_
    assert again.n_features_in_ == 3
    assert repr(again.kernel_) == repr(model.kernel_)
    rows = torch.as_tensor(new_rows[0])
    assert torch.equal(again.kernel_(rows), model.kernel_(rows))
    assert again.get_params() == model.get_params()


@pytest.mark.parametrize(
    "parameters",
    [
        {"kernel": 1.5 * Matern52(lengthscale=[0.3, 1.0, 2.0]) + Linear() * RBF(), "mean": "linear"},
        {"kernel": "matern32 + periodic * rbf", "ard": False},
        {"kernel": Periodic(period=2.0)},
        {"priors": {"lengthscale": [Interval(0.01), LogNormal(1.0, 2.0)], "noise": Gamma(2.0, 5.0)}},
        {"priors": {"lengthscale": Interval(0.1, 10.0)}, "fixed": ("noise",)},
        {"fixed": ["noise", "lengthscale"]},
        {"alpha": np.linspace(0.1, 2.0, 120)},
        {"alpha": 0.5},
        {"predict_dtype": "float32"},
        {"standardize": False},
        {"validation_fraction": 0.2, "patience": 3},
        {"random_state": np.random.RandomState(3)},
        {"standardize": np.bool_(True), "n_restarts": np.int64(1)},
    ],
    ids=lambda parameters: ", ".join(parameters),
)
def test_every_parameter_survives(parameters, make, table, new_rows, tmp_path):
    gp = make(max_epochs=2).set_params(**parameters)
    again = saved_and_loaded(gp.fit(*table), tmp_path / "model.candid")
    assert_same_predictions(gp, again, new_rows[0])
    for name, value in parameters.items():
        if name == "random_state":
            assert again.random_state is None
        elif name == "alpha":
            np.testing.assert_array_equal(again.alpha, value)
        elif name == "fixed":
            assert again.fixed == tuple(value)
        elif name == "priors":
            assert again.priors == {
                key: tuple(entry) if isinstance(entry, list) else entry for key, entry in value.items()
            }
        else:
            assert repr(getattr(again, name)) in (repr(value), repr(getattr(value, "item", lambda: None)()))


def test_a_loaded_model_can_be_fitted_again(quick, table, new_rows, tmp_path):
    X, y = table
    gp = quick(init=X[:7], kernel=2.0 * RBF(), priors={"noise": Interval(1e-4)}).fit(X, y)
    again = saved_and_loaded(gp, tmp_path / "model.candid")
    np.testing.assert_array_equal(again.init, X[:7])
    assert_same_predictions(gp, again.fit(X, y), new_rows[0])


def test_several_targets_and_feature_names(quick, table, tmp_path):
    X, y = table
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    gp = quick(max_epochs=2).fit(frame, np.column_stack([y, y**2]))
    again = saved_and_loaded(gp, tmp_path / "model.candid")
    assert list(again.feature_names_in_) == ["a", "b", "c"]
    assert_same_predictions(gp, again, frame)
    np.testing.assert_array_equal(again.noise_, gp.noise_)
    with pytest.raises(ValueError, match="feature names should match"):
        again.predict(frame[["b", "a", "c"]])


def test_what_belongs_to_the_machine_is_left_out(quick, table, tmp_path):
    gp = quick(max_epochs=1, callbacks=(print,), checkpoint_dir=str(tmp_path), n_threads=1, verbose=False).fit(*table)
    again = saved_and_loaded(gp, tmp_path / "model.candid")
    assert again.callbacks == ()
    assert again.checkpoint_dir is None
    assert str(tmp_path) not in (tmp_path / "model.candid").read_bytes().decode("latin-1")


def test_the_training_rows_of_a_sparse_model_are_not_in_the_file(quick, table, tmp_path):
    quick().fit(*table).save(tmp_path / "model.candid")
    with safe_open(tmp_path / "model.candid", framework="pt") as file:
        sizes = [file.get_tensor(name).numel() for name in file.keys()]  # noqa: SIM118
    assert max(sizes) == 20 * 20


def test_saving_an_unfitted_model(tmp_path):
    with pytest.raises(ValueError, match="not fitted"):
        SparseGPRegressor().save(tmp_path / "model.candid")
    assert list(tmp_path.iterdir()) == []


def test_paths_may_be_strings(fitted, tmp_path):
    fitted["map"].save(str(tmp_path / "model.candid"))
    assert isinstance(load(str(tmp_path / "model.candid")), SparseGPRegressor)


def test_a_file_is_replaced_whole_or_not_at_all(fitted, tmp_path, monkeypatch):
    path = tmp_path / "model.candid"
    fitted["map"].save(path)
    before = path.read_bytes()

    def power_cut(source, target):
        raise OSError("no power")

    monkeypatch.setattr(os, "replace", power_cut)
    with pytest.raises(OSError, match="no power"):
        fitted["svgp"].save(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.candid"]
    monkeypatch.undo()
    fitted["svgp"].save(path)
    assert load(path).objective == "elbo"
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.candid"]


def test_a_loaded_model_does_not_change_with_its_file(quick, table, new_rows, tmp_path):
    path = tmp_path / "model.candid"
    gp = quick(init=table[0][:7], max_epochs=2).fit(*table)
    again = saved_and_loaded(gp, path)
    with path.open("r+b") as file:
        file.write(b"\x01" * path.stat().st_size)
    assert_same_predictions(gp, again, new_rows[0])
    np.testing.assert_array_equal(again.init, gp.init)


def test_two_threads_may_save_to_one_path(fitted, tmp_path, monkeypatch):
    """One is about to replace the file when the other one saves and is done."""
    path, names = tmp_path / "model.candid", []
    replace = os.replace

    def interrupted(source, target):
        names.append(source)
        if len(names) == 1:
            fitted["map"].save(path)
        replace(source, target)

    monkeypatch.setattr(os, "replace", interrupted)
    fitted["svgp"].save(path)
    assert len(set(names)) == 2
    assert load(path).objective == "elbo"
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_process_predicts_the_same(fitted, new_rows, tmp_path):
    fitted["ppgpr-chol"].save(tmp_path / "model.candid")
    np.save(tmp_path / "rows.npy", new_rows[0])
    script = (
        "import sys, numpy as np, torch, candid; torch.set_num_threads(1); "
        "gp = candid.load(sys.argv[1] + '/model.candid'); "
        "np.save(sys.argv[1] + '/mean.npy', gp.predict(np.load(sys.argv[1] + '/rows.npy')))"
    )
    source = Path(files.__file__).parents[2]
    subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        check=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(source)},
    )
    np.testing.assert_array_equal(np.load(tmp_path / "mean.npy"), fitted["ppgpr-chol"].predict(new_rows[0]))


class TestDamage:
    @pytest.fixture
    def path(self, fitted, tmp_path):
        path = tmp_path / "model.candid"
        fitted["ppgpr-mf"].save(path)
        return path

    def test_missing(self, tmp_path):
        with pytest.raises(FileNotFoundError, match="there is no model file"):
            load(tmp_path / "nothing.candid")

    @pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.5, 0.9, 0.999])
    def test_truncated(self, path, share):
        content = path.read_bytes()
        path.write_bytes(content[: int(share * len(content))])
        with pytest.raises(ModelFileError, match="damaged"):
            load(path)

    def test_any_flipped_byte_is_found(self, path):
        content = path.read_bytes()
        places = np.random.default_rng(0).choice(len(content), size=60, replace=False)
        for place in places:
            path.write_bytes(content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :])
            with pytest.raises(ModelFileError):
                load(path)

    def test_appended_bytes(self, path):
        path.write_bytes(path.read_bytes() + b"more")
        with pytest.raises(ModelFileError):
            load(path)

    def test_noise(self, path):
        path.write_bytes(np.random.default_rng(0).bytes(5000))
        with pytest.raises(ModelFileError, match="not a candid model file"):
            load(path)

    def test_a_pickle_is_not_executed(self, path):
        class Trap:
            def __reduce__(self):
                return (os.mkdir, (str(path) + ".executed",))

        for content in (pickle.dumps(Trap()), b"\x80\x04."):
            path.write_bytes(content)
            with pytest.raises(ModelFileError, match="not a candid model file"):
                load(path)
        torch.save({"trap": Trap()}, path)
        with pytest.raises(ModelFileError, match="not a candid model file"):
            load(path)
        assert not Path(str(path) + ".executed").exists()

    def test_the_safetensors_of_someone_else(self, path):
        save_file({"weight": torch.ones(3)}, path)
        with pytest.raises(ModelFileError, match="not a candid model"):
            load(path)
        save_file({"weight": torch.ones(3)}, path, metadata={"format": "pt"})
        with pytest.raises(ModelFileError, match="not a candid model"):
            load(path)

    def test_a_directory(self, tmp_path):
        with pytest.raises(ModelFileError):
            load(tmp_path)

    def test_model_file_errors_are_value_errors(self):
        assert issubclass(ModelFileError, ValueError)


@pytest.fixture(scope="module")
def genuine(quick, table, tmp_path_factory):
    """Header and tensors of a file."""
    path = tmp_path_factory.mktemp("genuine") / "model.candid"
    kernel = 1.0 * Matern52(lengthscale=1.0)
    quick(kernel=kernel, max_epochs=1, mean="linear", priors={"noise": Gamma()}).fit(*table).save(path)
    return files._read(path)


class TestHostileHeaders:
    """Files with a checksum that is right and contents that are not."""

    @pytest.fixture
    def forge(self, genuine, tmp_path):
        path = tmp_path / "model.candid"
        text, tensors = genuine

        def write(change, tensors=tensors, tensor_change=None):
            header = json.loads(text)
            header = change(header) or header
            tensors = dict(tensors)
            if tensor_change is not None:
                tensor_change(tensors)
            forged = header if isinstance(header, str) else json.dumps(header)
            save_file(tensors, path, metadata={"candid": forged, "sha256": files._checksum(forged, tensors)})
            return path

        return write

    def test_an_unchanged_header_is_accepted(self, forge):
        assert isinstance(load(forge(lambda header: None)), SparseGPRegressor)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda header: header.update(format="candid-recipe"), "'candid-recipe' version 6"),
            (lambda header: header.update(version=3), "version 3; this candid reads"),
            (lambda header: header.update(version=99, unheard_of={}), "version 99; this candid reads"),
            (lambda header: header.update(version="1"), "faulty header"),
            (lambda header: header.update(version=None), "faulty header"),
            (lambda header: header.update(extra=1), "faulty header"),
            (lambda header: header.pop("predictor") and None, "faulty header"),
            (lambda header: header.update(history="long"), "faulty header"),
            (lambda header: header.update(n_features="3"), "faulty header"),
            (lambda header: header.update(n_features=3.5), "faulty header"),
            (lambda header: header.update(feature_names=[1, 2, 3]), "faulty header"),
            (lambda header: "[]", "faulty header"),
            (lambda header: "null", "faulty header"),
            (lambda header: "not json", "faulty header"),
            (lambda header: "[" * 100_000, "faulty header"),
            (
                lambda header: json.dumps(header)[:-1] + ',"kernels":' + '{"a":' * 5000 + "1" + "}" * 5001,
                "faulty header",
            ),
            (lambda header: header.update(estimator="os.system"), "estimator 'os.system'"),
            (lambda header: header.update(estimator="GPRegressor"), "estimator 'GPRegressor'"),
            (lambda header: header.update(estimator="ExactGPRegressor"), "cannot|unexpected"),
            (lambda header: header["kernels"].clear(), "its kernels are"),
            (lambda header: header["kernels"].update(predict={}), "its kernels are"),
            (lambda header: header["kernels"]["kernel_"].update(type="Exec"), "unknown kernel type 'Exec'"),
            (lambda header: header["kernels"]["kernel_"].update(type="__import__"), "unknown kernel type"),
            (lambda header: header["kernels"]["kernel_"].update(type=["Scale"]), "rebuilt"),
            (lambda header: header["kernels"]["kernel_"].update(parts=[]), "not a kernel"),
            (lambda header: header["kernels"]["kernel_"].pop("parameters") and None, "missing"),
            (lambda header: header["predictor"].update(type="script"), "unknown kind of predictor 'script'"),
            (lambda header: header["predictor"]["mean"].update(type="exec"), "unknown mean function 'exec'"),
            (lambda header: header["predictor"].update(points=[1, 2]), "rebuilt"),
            (lambda header: header["predictor"].update(points="many"), "rebuilt"),
            (lambda header: header["predictor"].update(points=[1, 21, 3]), "rebuilt"),
            (lambda header: header["predictor"].update(root=None), "rebuilt"),
            (lambda header: header.update(n_features=2), "rebuilt"),
            (lambda header: header.update(n_features=-3), "rebuilt"),
            (lambda header: header.update(feature_names=["a"]), "1 feature names do not fit 3"),
            (lambda header: header["parameters"].update(colour="red"), "colour"),
            (lambda header: header["parameters"].update(n_inducing="many"), "n_inducing"),
            (lambda header: header["parameters"].update(kernel={"kernel": "rbf", "tensors": "x"}), "rebuilt"),
            (lambda header: header["parameters"].update(init={"array": "parameter.missing"}), "parameter.missing"),
            (lambda header: header["parameters"].update(init={"code": "exit()"}), "rebuilt"),
            (lambda header: header["parameters"].update(priors={"prior": "Exec", "values": {}}), "Exec"),
            (
                lambda header: header["parameters"].update(priors={"prior": "Gamma", "values": {"shape": -1}}),
                "positive",
            ),
            (lambda header: header["parameters"].update(priors={"prior": "Gamma", "values": {"size": 1}}), "size"),
        ],
    )
    def test_nonsense_is_refused(self, change, message, forge):
        with pytest.raises(ModelFileError, match=message):
            load(forge(change))

    @pytest.mark.parametrize(
        "change",
        [
            lambda header: header.update(n_features=10**12),
            lambda header: header["predictor"].update(points=[1, 10**12, 3]),
            lambda header: header["predictor"].update(points=[1, 10**6, 3]),
            lambda header: header["predictor"].update(points=[-(10**6), -(10**6), 3]),
            lambda header: header["predictor"].update(root=[1, 10**6, 10**6]),
            lambda header: header["predictor"]["mean"].update(n_features=10**12),
            lambda header: header["predictor"]["mean"].update(n_features=10**6, n_outputs=10**6),
            lambda header: header["predictor"]["kernel"]["parameters"]["amplitude"].update(shape=[10**12]),
            lambda header: header["kernels"]["kernel_"]["parameters"]["amplitude"].update(shape=[10**5, 10**7]),
            lambda header: header["parameters"]["kernel"]["kernel"]["parameters"]["amplitude"].update(shape=[10**12]),
            lambda header: header["kernels"]["kernel_"]["parameters"]["amplitude"].update(shape=[1] * 5000),
        ],
    )
    def test_a_header_cannot_make_the_memory_overflow(self, change, forge, monkeypatch):
        allocated = []
        for name in ("zeros", "ones", "full"):
            original = getattr(torch, name)
            monkeypatch.setattr(
                torch,
                name,
                lambda *args, original=original, **options: allocated.append(out := original(*args, **options)) or out,
            )
        with pytest.raises(ModelFileError):
            load(forge(change))
        assert sum(tensor.numel() for tensor in allocated) < 10**5

    @pytest.mark.parametrize(
        "change",
        [
            lambda tensors: tensors.pop("predictor.y_scale"),
            lambda tensors: tensors.pop("predictor.inner.points"),
            lambda tensors: tensors.update({"predictor.more": torch.ones(2)}),
            lambda tensors: tensors.update({"predictor.y_scale": torch.ones(2, dtype=torch.float64)}),
            lambda tensors: tensors.update({"predictor.y_scale": torch.ones((), dtype=torch.float64)}),
            lambda tensors: tensors.update({"predictor.inner.points": torch.ones(1, 20, 3, dtype=torch.int64)}),
            lambda tensors: tensors.update({"kernel_.amplitude.raw": torch.ones(3)}),
            lambda tensors: tensors.clear(),
        ],
    )
    def test_tensors_that_do_not_fit(self, change, forge):
        with pytest.raises(ModelFileError):
            load(forge(lambda header: None, tensor_change=change))


def test_published_recipes_can_be_saved(table, new_rows, tmp_path):
    gp = make_gp("svgp", recipe="paper", n_inducing=10, max_epochs=2, random_state=0).fit(*table)
    assert_same_predictions(gp, saved_and_loaded(gp, tmp_path / "model.candid"), new_rows[0])


def test_numbers_of_numpy_are_numbers(table, tmp_path):
    prior = Gamma(np.int64(2), np.float32(1))
    quick = {"n_inducing": 5, "max_epochs": 1, "verbose": False, "checkpoint_dir": str(tmp_path)}
    plain = make_gp("svgp", **quick, lr=np.float32(0.01), priors={"lengthscale": prior}).fit(*table)
    assert saved_and_loaded(plain, tmp_path / "plain.candid").priors == {"lengthscale": Gamma(2, 1.0)}
    deep = make_gp("svgp-dkl", **quick, features=(np.int64(4), np.int64(2))).fit(*table)
    assert saved_and_loaded(deep, tmp_path / "deep.candid").features == (4, 2)
