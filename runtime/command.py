"""The command line of :mod:`runtime`."""

import argparse
import math
import sys
from collections.abc import Sequence

import numpy as np
import torch

from cli.atomic_files import replacing
from cli.consoles import table_console
from compiler.errors import CompileError
from compiler.frontend.layer import outputs
from compiler.frontend.torch_graph import trace
from golden.prediction.schedule import ScheduleConfig
from hw.config import PRESETS, VARIANTS
from hw.config.selection import add_settings, select_config

from .accelerator import Accelerator
from .device import DEVICES, SERIAL, require_device
from .errors import AcceleratorError, DifferenceFound, PortError
from .options import add_timeout, line_options
from .sources import Samples, load_model, load_samples, load_weights
from .trainer import METHODS, Trainer

__all__ = ["main"]

_TRAIN = "python -m runtime train --model mine.py:Net --data digits --method adagp --warm-up 1"
_PREDICT = "python -m runtime predict --model mine.py:Net --weights net.pt --data digits"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        return options.run(options)
    except (DifferenceFound, AcceleratorError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, PortError) else 1
    except OSError as error:
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    except (ValueError, CompileError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m runtime", allow_abbrev=False,
        description="Train a torch module on the accelerator, or run it there.",
    )  # fmt: skip
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    train = commands.add_parser(
        "train", allow_abbrev=False, help="train a module",
        description="Train a torch module on the accelerator, batch after batch.",
        epilog=f"example: {_TRAIN}",
    )  # fmt: skip
    _common(train)
    train.add_argument("--method", choices=METHODS, default="adagp", help="default: %(default)s")
    train.add_argument("--epochs", type=int, default=5, help="in all (%(default)s)")
    train.add_argument("--rate", type=float, default=0.05, help="learning rate (%(default)s)")
    train.add_argument("--momentum", type=float, default=0.9, help="default: %(default)s")
    train.add_argument("--decay", type=float, default=0.0, help="weight decay (%(default)s)")
    train.add_argument(
        "--warm-up", type=int, default=None, metavar="EPOCHS",
        help="epochs of backpropagation with which ADA-GP begins (10, as in the paper)",
    )  # fmt: skip
    train.add_argument(
        "--echo", type=int, default=0, metavar="K",
        help="K more steps of the head alone behind every batch, with --method bp (0)",
    )  # fmt: skip
    train.add_argument("--train", type=int, metavar="N", help="use N samples only")
    train.add_argument(
        "--check", action="store_true",
        help="train the golden model beside and compare every number after every batch",
    )  # fmt: skip
    train.add_argument("--weights", metavar="FILE", help="write the trained state_dict there")
    train.add_argument("--checkpoint", metavar="FILE", help="write one behind every epoch")
    train.add_argument("--resume", action="store_true", help="go on from --checkpoint")
    train.add_argument("--history", metavar="FILE.json", help="write the history there")
    train.add_argument("--plot", metavar="FILE.png", help="draw the history")
    train.set_defaults(run=_train)
    predict = commands.add_parser(
        "predict", allow_abbrev=False, help="classify samples",
        description="Classify the test samples of a dataset on the accelerator.",
        epilog=f"example: {_PREDICT}",
    )  # fmt: skip
    _common(predict)
    predict.add_argument("--weights", metavar="FILE", help="state_dict that train has written")
    predict.add_argument("--output", metavar="FILE.npy", help="write the classes there")
    predict.set_defaults(run=_predict)
    return parser


def _common(parser):
    parser.add_argument(
        "--model", required=True, metavar="NAME",
        help="FILE.py:NAME or MODULE:NAME of a class or function that makes a torch.nn.Module, of "
        "nothing or of the shape of an image and the number of classes; or vgg, resnet",
    )  # fmt: skip
    parser.add_argument(
        "--data", default="digits",
        help="digits, a directory with files of MNIST or CIFAR, or FILE.npz with images (N, C, H, "
        "W), labels, test_images, test_labels (%(default)s)",
    )  # fmt: skip
    parser.add_argument("--test", type=int, metavar="N", help="use N test samples only")
    parser.add_argument("--batch", type=int, default=16, help="samples in a batch (%(default)s)")
    parser.add_argument(
        "--device", default="emulator",
        help=f"{', '.join(DEVICES)} or {SERIAL}PORT, e.g. {SERIAL}/dev/ttyUSB0 (%(default)s)",
    )  # fmt: skip
    add_timeout(parser)
    parser.add_argument(
        "--variant", choices=tuple(VARIANTS), default="max", help="default: %(default)s"
    )
    parser.add_argument(
        "--preset", choices=tuple(PRESETS), default="tiny", help="default: %(default)s"
    )
    add_settings(parser)
    parser.add_argument("--seed", type=int, default=1, help="of weights and order (%(default)s)")


def _setting(options):
    """Samples and module."""
    require_device(options.device)
    _line_options(options)
    if options.batch < 1:
        raise ValueError(f"--batch must be at least 1, not {options.batch}")
    samples = load_samples(
        options.data, train=getattr(options, "train", None), test=options.test, seed=options.seed
    )
    torch.manual_seed(options.seed)
    model = load_model(options.model, samples.shape, samples.classes)
    for layer in outputs(trace(model, samples.shape)):
        count = math.prod(layer.shape) if layer.flat else layer.shape[0]
        if count < samples.classes:
            raise ValueError(
                f"{options.model} tells {count} classes apart, {options.data} has {samples.classes}"
            )
    return samples, model


def _line_options(options):
    return line_options(options, serial=options.device.startswith(SERIAL))


def _accelerator(options):
    config = select_config(
        variant=options.variant, preset=options.preset, settings=options.settings
    )
    return Accelerator(config, device=options.device, **_line_options(options))


def _train(options):
    if options.resume and not options.checkpoint:
        raise ValueError("--resume needs --checkpoint FILE")
    if options.epochs < 1:
        raise ValueError(f"--epochs must be at least 1, not {options.epochs}")
    samples, model = _setting(options)
    schedule = None
    if options.warm_up is not None and options.method == "adagp":
        schedule = ScheduleConfig(warm_up=options.warm_up)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=options.rate, momentum=options.momentum, weight_decay=options.decay
    )
    with _accelerator(options) as accelerator:
        trainer = Trainer(
            model, accelerator, method=options.method, optimizer=optimizer, schedule=schedule,
            check=options.check, echo=options.echo,
        )  # fmt: skip
        if options.resume:
            trainer.resume(options.checkpoint)
        history = trainer.fit(
            _loader(samples, options), options.epochs, validation=_validation(samples, options),
            checkpoint=options.checkpoint,
        )  # fmt: skip
    console = table_console(120)
    console.print(history.table())
    if options.check:
        console.print("every number equals golden's after every batch")
    if options.weights:
        with replacing(options.weights) as file:
            torch.save(model.state_dict(), file)
    if options.history:
        history.save(options.history)
    if options.plot:
        history.plot(options.plot)
    return 0


def _loader(samples: Samples, options):
    data = torch.utils.data.TensorDataset(samples.images, samples.labels)
    return torch.utils.data.DataLoader(data, batch_size=options.batch, shuffle=True)


def _validation(samples, options):
    if samples.test_images is None:
        return None
    data = torch.utils.data.TensorDataset(samples.test_images, samples.test_labels)
    return torch.utils.data.DataLoader(data, batch_size=options.batch)


def _predict(options):
    samples, model = _setting(options)
    if samples.test_images is None:
        raise ValueError(f"{options.data} has no test_images")
    if options.weights:
        load_weights(model, options.weights, samples, options.data)
    with _accelerator(options) as accelerator:
        classes = accelerator.predict(model, samples.test_images, batch=options.batch)
    right = float(np.mean(classes == samples.test_labels.numpy()))
    print(f"{len(classes)} samples, {right:.2%} classified correctly")
    if options.output:
        with replacing(options.output) as file:
            np.save(file, classes)
    return 0
