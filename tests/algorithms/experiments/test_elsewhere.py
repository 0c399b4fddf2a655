"""Training runs in processes are those that run here, and their records have the same names."""

from types import SimpleNamespace

from algorithms.experiments.elsewhere import run_all
from algorithms.experiments.experiment import RESULTS, Experiment, run
from cli.workers import Workers

SMALL = {"epochs": 1, "batch": 16, "train_images": 40, "test_images": 20}


def without_times(record):
    return record | {"seconds": None}


def test_processes(tmp_path, seed):
    experiments = [Experiment(method=method, seed=seed, **SMALL) for method in ("bp", "skip")]
    done = list(run_all(experiments, Workers(jobs=2), tmp_path / "a"))
    found = {record["experiment"]["method"]: (path, record) for path, record in done}
    for experiment in experiments:
        path, record = found[experiment.method]
        here = run(experiment, directory=tmp_path / "b")
        assert without_times(record) == without_times(here)
        assert path.parent == tmp_path / "a" and (tmp_path / "b" / path.name).is_file()
        assert path.is_file() and not list(path.parent.glob("*.pt"))


def test_on_a_cluster_the_record_is_kept_here(tmp_path, seed):
    """A worker's directory is its own; the record comes back by value."""
    experiment = Experiment(method="bp", seed=seed, **SMALL)
    record = {"identity": "0123abcd", "epochs": []}
    asked = []

    def results(function, tasks):
        asked.extend(tasks)
        yield 0, record

    workers = SimpleNamespace(scheduler="tcp://127.0.0.1:1", jobs=1, results=results)
    assert list(run_all([experiment], workers, tmp_path)) == [
        (tmp_path / f"digits-vgg-bp-seed{seed}-0123abcd.json", record)
    ]
    assert asked == [(experiment, RESULTS)] and list(tmp_path.iterdir())
