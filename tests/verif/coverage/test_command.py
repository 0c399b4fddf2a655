"""The command line of the campaign, and the campaign on stimuli that are none.

Covers: verif/coverage/campaign.py, verif/coverage/configs.py, verif/coverage/counted.py,
verif/coverage/stimuli.py, verif/coverage/block_stimuli.py.
"""

import json

import pytest

from hw.config import VARIANTS, make_config
from verif.__main__ import main
from verif.coverage.configs import CONFIGS


def test_configurations():
    configs = {name: make_config(preset="tiny", **fields) for name, fields in CONFIGS.items()}
    assert {config.variant for config in configs.values()} == set(VARIANTS)
    assert all(config.has_training_engines for config in configs.values())


def test_an_unknown_configuration(capsys):
    assert main(["coverage", "--config", "max", "--config", "huge"]) == 2
    error = capsys.readouterr().err
    assert (
        error
        == "verif: unknown configuration huge; they are baseline, low, efficient, max, blocks\n"
    )


def fake(passes, reaches):
    """Stimuli that reach functional points of the configuration without a simulation."""
    from verif.coverage import campaign
    from verif.coverage.bins import functional_points
    from verif.coverage.stimuli import Stimulus
    from verif.sim.instrument import current

    def stimuli(name, seed, *, quick):
        def run():
            config = make_config(preset="tiny", **CONFIGS[name])
            points = functional_points(config)
            current().add((point, 1) for point in points if reaches(point))
            if not passes:
                raise AssertionError("byte 3 is wrong")

        yield Stimulus(name=f"{name}: nothing", run=run)

    return campaign, stimuli


@pytest.mark.parametrize("passes", [True, False])
def test_reports_are_written(passes, tmp_path, monkeypatch, capsys):
    campaign, stimuli = fake(passes, lambda point: "command LOAD" in point.what)
    monkeypatch.setattr(campaign, "stimuli", stimuli)
    arguments = ["coverage", "--quick", "--seed", "7", "--output", str(tmp_path)]
    assert main(arguments) == (0 if passes else 1)
    values = json.loads((tmp_path / "coverage.json").read_text())
    assert (values["seeds"], values["quick"], values["failed"]) == ([7], True, int(not passes))
    assert values["stimuli"][0]["failure"] == (None if passes else "byte 3 is wrong")
    load = values["modules"]["hw/dma/load.py"]["functional"]
    assert 0 < load["reached"] < load["points"]
    assert values["modules"]["hw/dma/store.py"]["functional"]["reached"] == 0
    text = (tmp_path / "report.md").read_text()
    assert "## hw/dma/store.py" in text and "command STORE on core 0" in text
    assert "seed 7" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("reached", "waivers", "message"),
    [
        (True, "", None),
        (False, "", "points are not reached and have no reason, first"),
        (
            True,
            '[[waiver]]\nkind = "line"\nfile = "*"\nwhat = "*"\nreason = "none"\n',
            "1 waivers match nothing that is unreached",
        ),
        (
            False,
            '[[waiver]]\nkind = "functional"\nfile = "*"\nwhat = "*"\nreason = "no runs"\n',
            None,
        ),
    ],
)
def test_the_whole_campaign_wants_reasons(reached, waivers, message, tmp_path, monkeypatch, capsys):
    campaign, stimuli = fake(True, lambda point: reached)
    monkeypatch.setattr(campaign, "stimuli", stimuli)
    monkeypatch.setattr(campaign, "block_stimuli", lambda seed: ())
    (tmp_path / "waivers.toml").write_text(waivers)
    monkeypatch.setattr(campaign, "WAIVERS", tmp_path / "waivers.toml")
    assert main(["coverage", "--output", str(tmp_path)]) == int(message is not None)
    output = " ".join(capsys.readouterr().out.split())
    assert message is None or message in output


def campaign_of(names, output, monkeypatch, reaches):
    campaign, stimuli = fake(True, reaches)
    monkeypatch.setattr(campaign, "stimuli", stimuli)
    monkeypatch.setattr(campaign, "block_stimuli", lambda seed: ())
    arguments = [word for name in names for word in ("--config", name)]
    assert main(["coverage", *arguments, "--output", str(output)]) == 0
    return str(output / "counts.json")


def test_counts_are_judged_again(tmp_path, monkeypatch, capsys):
    """Campaigns of single configurations are one campaign together."""
    everything = (*CONFIGS, "blocks")
    (tmp_path / "waivers.toml").write_text("")
    files = []
    for number, part in enumerate((everything[:2], everything[2:])):
        files.append(campaign_of(part, tmp_path / str(number), monkeypatch, lambda point: True))
    monkeypatch.setattr("verif.coverage.campaign.WAIVERS", tmp_path / "waivers.toml")
    capsys.readouterr()
    both = ["coverage", "--counts", files[0], "--counts", files[1], "--output", str(tmp_path)]
    assert main(both) == 0
    values = json.loads((tmp_path / "coverage.json").read_text())
    assert list(values["parts"]) == list(everything) and len(values["stimuli"]) == len(CONFIGS)
    functional = values["totals"]["functional"]
    assert functional["reached"] == functional["points"] > 3000

    wrong = '[[waiver]]\nkind = "line"\nfile = "*"\nwhat = "*"\nreason = "none"\n'
    (tmp_path / "waivers.toml").write_text(wrong)
    assert main(both) == 1, "all of it was simulated, so a waiver that matches nothing is wrong"
    assert main(["coverage", "--counts", files[0], "--output", str(tmp_path)]) == 0


def test_counts_that_cannot_be_judged(tmp_path, monkeypatch, capsys):
    file = campaign_of(["max"], tmp_path, monkeypatch, lambda point: True)
    values = json.loads((tmp_path / "counts.json").read_text())
    for content, message in (
        ({**values, "hardware": "0123"}, "has counts of other hardware (0123) than that in hw/"),
        ({"hardware": "0123"}, "is no counts.json of a coverage campaign: 'counts'"),
        ([], "is no counts.json of a coverage campaign"),
    ):
        (tmp_path / "counts.json").write_text(json.dumps(content))
        assert main(["coverage", "--counts", file, "--output", str(tmp_path)]) == 2
        assert message in capsys.readouterr().err
    assert main(["coverage", "--counts", file, "--quick"]) == 2
    assert "--counts simulates nothing; it takes neither" in capsys.readouterr().err
