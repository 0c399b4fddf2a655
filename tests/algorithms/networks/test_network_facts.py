"""Facts about networks: numbers worked out by hand, the table of docs/algorithm.md."""

import json
from pathlib import Path

import pytest

from algorithms.__main__ import main
from algorithms.networks.network_facts import LayerFacts, examine
from algorithms.networks.paper_networks import NETWORKS
from algorithms.networks.registry import MODELS
from golden.prediction.config import PredictorConfig

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "algorithm.md"


def test_a_small_network_by_hand():
    facts = examine("vgg", (3, 8, 12), 10)
    assert [(layer.name, layer.outputs, layer.size, layer.pixels) for layer in facts.layers] == [
        ("0", 16, 27, 96),
        ("3", 16, 144, 96),
        ("7", 32, 144, 24),
        ("10", 32, 288, 24),
        ("15", 32, 32 * 2 * 3, 1),
    ]
    assert facts.head == LayerFacts(name="17", outputs=10, size=32, pixels=1)
    # Weights, two numbers of batch normalisation for each map, biases of the linear layers.
    assert facts.parameters == 432 + 2304 + 4608 + 9216 + 6144 + 320 + 2 * (16 * 2 + 32 * 2) + 42
    assert facts.largest == 288
    assert facts.macs == (432 + 2304) * 96 + (4608 + 9216) * 24 + 6144 + 320


def test_the_predictor_by_hand():
    """Of 16 maps, 2 · 3² pixels by 9 for the convolution, then 18 by n."""
    config = PredictorConfig(channels=2, map_size=3)
    layer = LayerFacts(name="a", outputs=16, size=27, pixels=96)
    assert layer.predictor_macs(config) == 16 * (2 * 9 * 9 + 18 * 27)
    facts = examine("vgg", (3, 8, 12), 10)
    share, most = facts.predictor_share(config, 5)
    parts = [
        (outputs * (162 + 18 * size), 5 * outputs * size * pixels)
        for outputs, size, pixels in (
            (16, 27, 96), (16, 144, 96), (32, 144, 24), (32, 288, 24), (32, 192, 1),
        )
    ]  # fmt: skip
    assert share == sum(part[0] for part in parts) / sum(part[1] for part in parts)
    assert most == parts[4][0] / parts[4][1]


def test_memory_of_the_paper():
    """1080 RAMB36 = 4608 x 480 words of 16 bits: what ResNet takes. VGG for ImageNet takes more."""
    assert examine("resnet50", (3, 224, 224), 1000).paper_blocks == 1080
    assert examine("vgg16", (3, 32, 32), 10).paper_rows == 4608
    assert examine("vgg16", (3, 224, 224), 1000).paper_rows == 512 * 49
    # The head of DenseNet is its largest layer; it is predicted in paper mode only.
    facts = examine("densenet161", (3, 32, 32), 10)
    assert (facts.largest, facts.paper_rows) == (2160, 2208)
    assert facts.paper_blocks == -(-2208 * 480 // 2048)


def test_the_document_has_the_table(capsys):
    """docs/algorithm.md holds what python -m algorithms models prints."""
    assert main(["models"]) == 0
    lines = capsys.readouterr().out.splitlines()
    document = DOCUMENT.read_text().splitlines()
    first = document.index(lines[0])
    for number, line in enumerate(lines):
        assert document[first + number] == line, f"line {first + number + 1} of {DOCUMENT.name}"
    assert not document[first + len(lines)].startswith("|")
    assert len(lines) == 2 + len(MODELS) + len(NETWORKS)


def test_json(capsys):
    arguments = [
        "models",
        "resnet18",
        "vgg",
        "--input",
        "1x16x12",
        "--classes",
        "3",
        "--batch",
        "4",
    ]
    assert main([*arguments, "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    facts = examine("resnet18", (1, 16, 12), 3)
    assert first["name"] == "resnet18" and second["name"] == "vgg"
    assert first["input_shape"] == [1, 16, 12] and first["classes"] == 3
    assert len(first["layers"]) == 20
    assert first["layers"][1] == {"name": "3.body.0", "outputs": 64, "size": 576, "pixels": 192}
    assert first["head"]["outputs"] == 3 and first["macs"] == facts.macs
    share, most = facts.predictor_share(PredictorConfig(), 4)
    assert first["predictor"] == {
        "features": 64, "batch": 4, "share": share, "largest_share": most
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing", "vgg"], "models: nothing must be among vgg, resnet, vgg11"),
        (["--input", "3x32"], "input must be channels, height and width as in 3x32x32, not '3x32'"),
        (["--input", "3x0x8"], "input must be channels, height and width as in 3x32x32"),
        (["--batch", "0"], "batch must be at least 1, not 0"),
        (["resnet18", "--input", "3x7x9"], "images must have at least 8 x 8 pixels, not 7 x 9"),
        (["vgg", "--input", "3x2x2"], "images must have at least 4 x 4 pixels, not 2 x 2"),
    ],
)
def test_faults(capsys, arguments, message):
    assert main(["models", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
