"""Saved programs of all three kinds: the same after loading, without torch, shown with the names
of their own semaphores; files of another kind, configuration or version are refused."""

import dataclasses
import io
import json
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

import compiler
from compiler.__main__ import main
from compiler.adagp.compile import PARTS, compile_adagp
from compiler.codegen.binary import program_file
from compiler.codegen.disassemble import disassemble
from compiler.training.compile import compile_training
from hw.config import make_config
from hw.isa.encoding import Opcode

SHAPE, IMAGES = (1, 6, 6), 2
CLASSES = {
    "inference": compiler.CompiledProgram,
    "training": compiler.TrainingProgram,
    "adagp": compiler.AdaGPProgram,
}
CONFIG = make_config(variant="max", preset="tiny")


def network(groups=2):
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, groups=groups),
        nn.Flatten(),
        nn.Linear(16, 3),
    )


@pytest.fixture(scope="module")
def programs():
    return {
        "inference": compiler.compile(network(groups=1), CONFIG, (IMAGES, *SHAPE)),
        "training": compile_training(network(), CONFIG, SHAPE, images=IMAGES),
        "adagp": compile_adagp(network(), CONFIG, SHAPE, images=IMAGES),
    }


@pytest.fixture(scope="module")
def files(programs, tmp_path_factory):
    directory = tmp_path_factory.mktemp("programs")
    for kind, program in programs.items():
        program.save(directory / kind)
    assert sorted(path.name for path in directory.iterdir()) == sorted(programs)
    return directory


def fields_of(program):
    """Every field; of the predictor, which is no dataclass, all members."""
    found = {field.name: getattr(program, field.name) for field in dataclasses.fields(program)}
    if "predictor" in found:
        found["predictor"] = vars(found["predictor"])
    return found


@pytest.mark.parametrize("kind", CLASSES)
def test_load_gives_what_was_saved(kind, programs, files):
    loaded = CLASSES[kind].load(files / kind, CONFIG)
    assert fields_of(loaded) == fields_of(programs[kind])


def test_a_loaded_program_trains(programs, files, rng):
    """Memory, batch, state and loss of what was loaded, and of the ADA-GP program its parts'."""
    images, labels = rng.standard_normal((IMAGES, 6, 6, 1)), rng.integers(0, 3, IMAGES)
    weights = {name: values.numpy() for name, values in network().state_dict().items()}
    for kind in ("training", "adagp"):
        program, loaded = programs[kind], CLASSES[kind].load(files / kind)
        memory = loaded.memory(weights)
        assert memory == program.memory(weights)
        assert loaded.batch(images, labels) == program.batch(images, labels)
        found = loaded.state(memory)
        assert found.keys() == weights.keys()
        for name, values in weights.items():
            np.testing.assert_array_equal(found[name], values, err_msg=f"{kind} {name}")
        assert not any(values.any() for values in loaded.state(memory, "velocity").values())
        tensor = (loaded.loop if kind == "adagp" else loaded).tensors["loss"]
        numbers = np.array([[[[1.25, 2]]]], np.float32)
        memory[tensor.offset : tensor.offset + tensor.size] = tensor.pack(numbers)
        assert loaded.loss_of(memory) == (1.25, 2)


def test_torch_is_not_needed(files):
    """Neither to load nor to show; a finder refuses it."""
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "import compiler; from compiler.__main__ import main\n"
        "for kind, name in zip(sys.argv[2::2], sys.argv[3::2]):\n"
        "    getattr(compiler, name).load(f'{sys.argv[1]}/{kind}')\n"
        "    assert main(['--show', f'{sys.argv[1]}/{kind}']) == 0\n"
        "    assert main(['--plan', f'{sys.argv[1]}/{kind}']) == 0\n"
    )
    pairs = [word for kind, cls in CLASSES.items() for word in (kind, cls.__name__)]
    done = subprocess.run(
        [sys.executable, "-c", script, str(files), *pairs],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("kind", CLASSES)
def test_files_of_another_kind(kind, files):
    for other, cls in CLASSES.items():
        if other == kind:
            continue
        what, loader = program_file.KINDS[kind]
        message = f"{kind} holds {what}, not {program_file.KINDS[other][0]}; {loader} reads it"
        with pytest.raises(compiler.ProgramError, match=re.escape(message)):
            cls.load(files / kind)
        # The class that the message names is there.
        assert loader == f"compiler.{CLASSES[kind].__name__}.load"


@pytest.mark.parametrize("kind", CLASSES)
def test_files_of_another_configuration(kind, files):
    other = make_config(variant="max", preset="tiny", rows=8)
    with pytest.raises(compiler.ProgramError, match="another configuration: rows 4, not 8"):
        CLASSES[kind].load(files / kind, other)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "has format version 2, not 11; compile it again"),
        ({"kind": "song"}, "is damaged: KeyError\\('song'\\)"),
        ({"config": {"rows": -3}}, "is for a configuration that does not exist: .*rows"),
        ({"config": {"wheels": 4}}, "is for a configuration that does not exist: .*wheels"),
        ({"program": {}}, "is damaged: .*layers"),
    ],
)
def test_files_of_another_time(change, message, files, tmp_path):
    with np.load(files / "training") as file:
        arrays = {name: file[name] for name in file.files}
    arrays["meta"] = np.array(json.dumps(json.loads(str(arrays["meta"])) | change))
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    path = tmp_path / "changed.bin"
    path.write_bytes(buffer.getvalue())
    with pytest.raises(compiler.ProgramError, match=message) as caught:
        compiler.TrainingProgram.load(path)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_files_that_are_cut(kind, share, files, tmp_path):
    data = (files / kind).read_bytes()
    path = tmp_path / "cut.bin"
    path.write_bytes(data[: int(share * len(data))])
    with pytest.raises(compiler.ProgramError, match="is damaged"):
        CLASSES[kind].load(path)


def test_nothing_is_left_of_a_file_that_cannot_be_written(programs, tmp_path):
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError):
        programs["training"].save(tmp_path / "taken")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


# Names of semaphores ------------------------------------------------------------------------------


def streams(kind, program):
    if kind != "adagp":
        return {kind: program}
    return program.parts | {"loop": program.loop}


@pytest.mark.parametrize("kind", ["training", "adagp"])
def test_names_say_which_queues_wait(kind, programs):
    """Whoever signals or waits is one of the two queues in the name."""
    seen = set()
    for program in streams(kind, programs[kind]).values():
        names, stretches = {}, {s.first: s.names for s in program.semaphores}
        for index, (opcode, fields) in enumerate(program.command_list):
            names = stretches.get(index, names)
            for key, side in (("signal", 0), ("wait", 1)):
                for number in range(CONFIG.semaphore_count):
                    if fields.get(key, 0) >> number & 1:
                        queues = names[number].split("->")
                        core = (queues[side] if "." in queues[side] else queues[0])[:2]
                        queue = queues[side].removeprefix(f"{core}.")
                        where = f"{key} of command {index}, {opcode.name}: {names[number]}"
                        assert (core, queue) == (f"c{fields['core']}", opcode.name.lower()), where
                        seen.add(names[number])
    assert "c0.load->matmul" in seen


def test_steps_in_programs_of_their_own_have_names_of_their_own():
    program = compile_training(
        network(), make_config(variant="baseline", preset="tiny"), SHAPE, images=IMAGES,
        separate=True,
    )  # fmt: skip
    assert [stretch.first for stretch in program.semaphores] == [s.first for s in program.steps]
    lines = list(disassemble(program.commands, semaphores=program.semaphores))
    assert any("MATMUL  wait=c0.load->matmul" in line for line in lines)
    assert not any(re.search(r"(wait|signal)=\S*\b\d+[, ]", line) for line in lines)


@pytest.mark.parametrize("kind", CLASSES)
def test_show(kind, programs, files, capsys):
    assert main(["--show", str(files / kind)]) == 0
    lines = capsys.readouterr().out.splitlines()
    parts = streams(kind, programs[kind])
    headings = [line.partition(":")[0] for line in lines if line.startswith("#")]
    assert headings == ([f"# {name}" for name in (*PARTS, "loop")] if kind == "adagp" else [])
    count = sum(len(part.command_list) for part in parts.values())
    assert len(lines) == count + len(headings)
    first = next(line for line in lines if " MATMUL " in line)
    assert "wait=c0.load->matmul" in first
    assert not any(re.search(r"(wait|signal)=\S*\b\d+[, ]", line) for line in lines)
    if kind != "inference":
        # Tensors that take turns in one place are not called by the name of one of them.
        assert any(re.search(r"\(\d+ tensors in turn\)", line) for line in lines)
        assert any("(0.weight.operands+0x0)" in line for line in lines)


def test_show_without_names(programs, tmp_path, capsys):
    """A raw stream says nothing of its semaphores: numbers."""
    program = programs["training"]
    path = tmp_path / "raw.bin"
    path.write_bytes(program.commands)
    assert main(["--show", str(path)]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if " MATMUL " in line)
    wait = next(fields["wait"] for opcode, fields in program.command_list
                if opcode is Opcode.MATMUL)  # fmt: skip
    numbers = ",".join(str(n) for n in range(CONFIG.semaphore_count) if wait >> n & 1)
    assert f"wait={numbers} " in line


@pytest.mark.parametrize("kind", CLASSES)
def test_plan(kind, files, capsys):
    assert main(["--plan", str(files / kind)]) == 0
    text = capsys.readouterr().out
    wanted = {
        "inference": ["tiling efficiency"],
        "training": ["weight gradient", "commands for a batch of 2 images", " blocks in "],
        "adagp": ["bp:", "gp:", "predictor learns", " blocks in "],
    }
    for words in wanted[kind]:
        assert words in text
