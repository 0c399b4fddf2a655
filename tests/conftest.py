"""One seed for the whole session, printed in the header and in every failure."""

import os

import numpy as np
import pytest

DEFAULT_SEED = 1


def pytest_addoption(parser):
    parser.addoption(
        "--seed",
        type=int,
        default=int(os.environ.get("ADAGP_SEED") or DEFAULT_SEED),
        help=f"seed of all random stimulus (default: $ADAGP_SEED, else {DEFAULT_SEED})",
    )
    parser.addoption(
        "--long",
        action="store_true",
        help="run what takes minutes, too: the waveform of docs/example.md",
    )


def pytest_report_header(config):
    return f"seed: {config.getoption('seed')} (repeat with --seed {config.getoption('seed')})"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed:
        seed = item.config.getoption("seed")
        report.sections.append(("seed", f"--seed {seed}"))
    return report


@pytest.fixture
def seed(request) -> int:
    """The session's seed."""
    return request.config.getoption("seed")


@pytest.fixture
def rng(seed) -> np.random.Generator:
    """A random generator that starts at the session's seed in every test."""
    return np.random.default_rng(seed)
