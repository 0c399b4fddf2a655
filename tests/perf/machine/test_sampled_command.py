"""Cycles of backward passes that keep a part of the images."""

import pytest

from perf.__main__ import main

COMMAND = ["sampled", "--network", "vgg11", "--input", "3x8x8", "--batch", "4", "--width", "0.0625",
           "--preset", "tiny"]  # fmt: skip


@pytest.mark.long  # compiles VGG three times
def test_fewer_images_take_fewer_cycles(capsys):
    assert main([*COMMAND, "--kept", "1", "4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    plain, one, four = (
        line for line in lines if line.strip().startswith(("plain", "1 of", "4 of"))
    )
    assert plain.split()[-1] == "1.000"
    assert float(one.split()[-1]) < float(four.split()[-1])


def test_refusals(capsys):
    assert main([*COMMAND, "--kept", "5"]) == 2
    assert "--kept must be from 0 to the batch of 4, not 5" in capsys.readouterr().err
    assert main([*COMMAND, "--kept", "2", "--latency", "-1"]) == 2
    assert "latency must be at least 0, not -1" in capsys.readouterr().err
