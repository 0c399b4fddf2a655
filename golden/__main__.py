"""Command line of the reference models: ``python -m golden train digits``."""

import argparse
import sys
import time

import numpy as np
import torch

from golden import digits
from golden.formats import FORMATS
from golden.network import Network
from golden.train import Recipe, default_path

MODELS = ("digits",)


def main(arguments=None) -> int:
    """Run the command line; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        return _train_digits(options)
    except (OSError, ValueError) as error:
        print(f"golden: {error}", file=sys.stderr)
        return 2


def _parser():
    parser = argparse.ArgumentParser(prog="python -m golden", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser(
        "train",
        help="train a network and print its accuracy in float32 and in the operand format",
        description="Train a network on the CPU; the same seed gives the same weights.",
    )
    command.add_argument("model", choices=MODELS)
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
    return parser


def _train_digits(options):
    recipe = Recipe(seed=options.seed, epochs=options.epochs)
    path = options.output or default_path("digits", recipe)
    started = time.perf_counter()
    model = digits.trained_model(
        recipe.seed, epochs=recipe.epochs, path=path, fresh=True, report=print
    )
    print(f"trained in {time.perf_counter() - started:.1f} s; weights in {path}")

    data = digits.load(recipe.seed)
    with torch.no_grad():
        logits = model(digits.to_torch(data.test_images)).numpy()
    network = Network.from_torch(
        model,
        input_shape=digits.INPUT_SHAPE,
        rows=options.rows,
        operand_format=options.format,
        calibration=data.calibration_images,
    )
    started = time.perf_counter()
    result = network.forward(data.test_images)
    seconds = time.perf_counter() - started
    own = digits.accuracy(result.logits, data.test_labels)
    same = np.mean(result.logits.argmax(1) == logits.argmax(1))
    name = f"bit-exact {options.format}"
    width = max(len(name), len("torch float32"))
    print(f"accuracy on {len(data.test_labels)} test images")
    print(f"  {'torch float32':{width}}  {digits.accuracy(logits, data.test_labels):.2%}")
    print(f"  {name:{width}}  {own:.2%}  ({seconds:.1f} s; {same:.2%} classified as in torch)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
