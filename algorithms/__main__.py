"""Command line of float32 training: ``python -m algorithms train``, ``report``, ``models`` ..."""

import sys

from cli.interrupt import end_on_signals

if __name__ == "__main__":
    # Before imports that take seconds.
    end_on_signals(
        "algorithms",
        "; the same command goes on" * (sys.argv[1:2] in (["train"], ["compare"], ["pipeline"])),
    )

import argparse
import json
import time

import numpy as np
import torch

from algorithms.common.devices import DEVICES, best_device
from algorithms.common.float_training import Recipe, default_path
from algorithms.comparison.command import add_answer, add_compare
from algorithms.comparison.summary import kept_comparisons
from algorithms.data.datasets import DATASETS
from algorithms.experiments.elsewhere import run_all
from algorithms.experiments.experiment import RESULTS, Experiment, run
from algorithms.experiments.methods import METHODS
from algorithms.experiments.report import write_report
from algorithms.networks import digits_cnn
from algorithms.networks.network_facts import examine, read_shape, table
from algorithms.networks.paper_networks import NETWORKS, imagenet_shape
from algorithms.networks.registry import MODELS
from algorithms.pipeline.command import add_pipeline
from algorithms.pipeline.launch import PipelineError
from cli.workers import add_workers, workers_of
from golden.arithmetic.formats import FORMATS
from golden.inference.network import Network
from golden.prediction.config import PredictorConfig
from golden.prediction.schedule import ScheduleConfig, Stage


def main(arguments=None) -> int:
    """Run the command line; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        return options.action(options)
    except PipelineError as error:
        print(f"algorithms: {error}", file=sys.stderr)
        return 1
    except (OSError, ValueError) as error:
        print(f"algorithms: {error}", file=sys.stderr)
        return 2


def _parser():
    parser = argparse.ArgumentParser(prog="python -m algorithms", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    _add_train(commands)
    _add_report(commands)
    add_compare(commands)
    add_answer(commands)
    add_pipeline(commands)
    _add_models(commands)
    _add_digits(commands)
    return parser


def _add_train(commands):
    command = commands.add_parser(
        "train",
        help="train with backpropagation, ADA-GP or a control, and keep records",
        description="Train in float32, one record per run. Finished runs are not done again and "
        "interrupted ones go on.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="methods:\n" + "\n".join(f"  {k:12} {v.summary}" for k, v in METHODS.items()),
    )
    command.set_defaults(action=_train)
    command.add_argument(
        "--data",
        default=Experiment.data,
        help=f"{', '.join(DATASETS)} or a directory (default: {Experiment.data})",
    )
    command.add_argument(
        "--model",
        default=Experiment.model,
        choices=tuple(MODELS),
        metavar="MODEL",
        help=f"{', '.join(MODELS)} (default: {Experiment.model})",
    )
    command.add_argument("--method", nargs="+", default=["adagp"], choices=tuple(METHODS))
    command.add_argument("--seeds", type=int, default=1, help="runs with seeds 1, 2, ...")
    command.add_argument("--epochs", type=int, default=Experiment.epochs, help="default: 20")
    command.add_argument(
        "--batch", type=int, default=Experiment.batch, help="images per step (default: 64)"
    )
    command.add_argument("--learning-rate", type=float, help="default: the method's")
    command.add_argument("--momentum", type=float, default=Experiment.momentum, help="default: 0.9")
    command.add_argument(
        "--weight-decay", type=float, default=Experiment.weight_decay, help="default: 0"
    )
    command.add_argument("--warm-up", type=int, default=4, help="epochs (default: 4)")
    command.add_argument(
        "--ladder",
        default="4:1x4,3:1x4,2:1x4,1:1",
        help="stages GP:BPxEPOCHS, the last one perhaps without end (default: %(default)s)",
    )
    command.add_argument("--train-images", type=int, help="use so many only")
    command.add_argument("--test-images", type=int, help="use so many only")
    command.add_argument(
        "--device",
        choices=DEVICES,
        default=best_device(),
        help="default: cuda where torch has it, else cpu; only cpu gives the same bits again, "
        "on the same kind of processor",
    )
    add_workers(command, jobs=1, what="runs")
    command.add_argument("--output", metavar="DIR", default=RESULTS, help=f"default: {RESULTS}")


def _add_report(commands):
    command = commands.add_parser(
        "report",
        help="compare the runs that train or compare has kept: a table and plots",
        description="Print a table of all finished runs of train and write it, with plots, beside "
        "them; of a directory of compare print its tables, and where its plots are.",
    )
    command.set_defaults(action=_report)
    command.add_argument("directory", nargs="?", default=RESULTS, help=f"default: {RESULTS}")
    command.add_argument("--no-plots", action="store_true", help="the table only")


def _add_models(commands):
    command = commands.add_parser(
        "models",
        help="list the networks: parameters, layers, MACs, what their predictor takes",
        description="Print a table of networks for images of CIFAR-10 and of ImageNet, or of one "
        "shape; docs/algorithm.md explains its columns.",
    )
    command.set_defaults(action=_models)
    command.add_argument(
        "names", nargs="*", metavar="NAME", help=f"default: all of {', '.join(MODELS)}"
    )
    command.add_argument("--input", metavar="CxHxW", help="images of this shape only")
    command.add_argument("--classes", type=int, default=10, help="with --input (default: 10)")
    command.add_argument("--batch", type=int, default=128, help="of the predictor (default: 128)")
    command.add_argument("--json", action="store_true", help="every layer as well, as JSON")


def _add_digits(commands):
    command = commands.add_parser(
        "digits",
        help="train the example network and print its accuracy in float32 and on bit patterns",
        description="Train the example network on the CPU; the same seed gives the same weights "
        "on the same kind of processor.",
    )
    command.set_defaults(action=_digits)
    command.add_argument("--seed", type=int, default=1, help="default: 1")
    command.add_argument(
        "--epochs",
        type=int,
        default=Recipe.epochs,
        help=f"passes over the training images (default: {Recipe.epochs})",
    )
    command.add_argument(
        "--output", metavar="FILE", help="also write the weights to this .npz file"
    )
    command.add_argument(
        "--format",
        default="bf16",
        choices=tuple(FORMATS),
        help="operand format of the bit-exact model (default: bf16)",
    )
    command.add_argument(
        "--rows", type=int, default=4, help="rows of the array it models (default: 4)"
    )


def _train(options):
    if options.seeds < 1:
        raise ValueError(f"seeds must be at least 1, not {options.seeds}")
    schedule = ScheduleConfig(warm_up=options.warm_up, ladder=_ladder(options.ladder))
    names = ("data", "model", "epochs", "batch", "learning_rate", "momentum", "weight_decay")
    names += ("train_images", "test_images", "device")
    settings = {name: getattr(options, name) for name in names} | {"schedule": schedule}
    experiments = [
        Experiment(method=method, seed=seed, **settings)
        for method in options.method
        for seed in range(1, options.seeds + 1)
    ]
    workers = workers_of(options)
    if workers.scheduler is None and workers.jobs == 1:
        for experiment in experiments:
            run(experiment, directory=options.output, report=lambda line: print(line, flush=True))
    else:
        done = run_all(experiments, workers, options.output)
        for count, (path, record) in enumerate(done, 1):
            accuracy = record["epochs"][-1]["accuracy"]
            print(f"{count}/{len(experiments)} {path.stem}: {accuracy:.2%}", flush=True)
    print(f"records in {options.output}; python -m algorithms report compares them")
    return 0


def _ladder(text):
    stages = []
    for part in text.split(",") if text else ():
        ratio, times, epochs = part.partition("x")
        try:
            gp, bp = (int(number) for number in ratio.split(":"))
            stages.append(Stage(gp=gp, bp=bp, epochs=int(epochs) if times else None))
        except ValueError as error:
            raise ValueError(
                f"ladder: {part!r} must be GP:BPxEPOCHS or GP:BP, as in 4:1x4 ({error})"
            ) from None
    return tuple(stages)


def _report(options):
    if comparisons := kept_comparisons(options.directory):
        print("\n".join(comparisons))
        return 0
    text, files = write_report(options.directory, plots=not options.no_plots)
    print(text)
    print("\n".join(f"wrote {file}" for file in files))
    return 0


def _models(options):
    names = options.names or list(MODELS)
    if unknown := [name for name in names if name not in MODELS]:
        raise ValueError(f"models: {', '.join(unknown)} must be among {', '.join(MODELS)}")
    for name in ("batch", "classes"):
        if getattr(options, name) < 1:
            raise ValueError(f"{name} must be at least 1, not {getattr(options, name)}")
    if options.input:
        shape = read_shape(options.input)
        networks = [examine(name, shape, options.classes) for name in names]
    else:
        networks = [examine(name, (3, 32, 32), 10) for name in names]
        networks += [
            examine(name, imagenet_shape(name), 1000) for name in names if name in NETWORKS
        ]
    config = PredictorConfig()
    if options.json:
        print(json.dumps([facts.to_dict(config, options.batch) for facts in networks], indent=1))
    else:
        print(table(networks, config, options.batch))
    return 0


def _digits(options):
    recipe = Recipe(seed=options.seed, epochs=options.epochs)
    path = options.output or default_path("digits", recipe)
    started = time.perf_counter()
    model = digits_cnn.trained_model(
        recipe.seed, epochs=recipe.epochs, path=path, fresh=True, report=print
    )
    print(f"trained in {time.perf_counter() - started:.1f} s; weights in {path}")

    data = digits_cnn.load(recipe.seed)
    with torch.no_grad():
        logits = model(digits_cnn.to_torch(data.test_images)).numpy()
    network = Network(
        model,
        input_shape=digits_cnn.INPUT_SHAPE,
        rows=options.rows,
        operand_format=options.format,
        calibration=data.calibration_images,
    )
    started = time.perf_counter()
    found = network.predict(data.test_images)
    seconds = time.perf_counter() - started
    own = digits_cnn.accuracy(found, data.test_labels)
    same = np.mean(found.argmax(1) == logits.argmax(1))
    name = f"bit-exact {options.format}"
    width = max(len(name), len("torch float32"))
    print(f"accuracy on {len(data.test_labels)} test images")
    print(f"  {'torch float32':{width}}  {digits_cnn.accuracy(logits, data.test_labels):.2%}")
    print(f"  {name:{width}}  {own:.2%}  ({seconds:.1f} s; {same:.2%} classified as in torch)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
