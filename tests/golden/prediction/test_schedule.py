"""Phases of batches: warm-up, the ladder, rounds, the control of equal time."""

import pytest

from golden.prediction.schedule import Phase, ScheduleConfig, Stage


def letters(schedule, epochs, batches):
    return "".join(phase.value for phase in schedule.phases(epochs, batches))


def test_defaults_are_those_of_the_paper():
    schedule = ScheduleConfig()
    ratios = [(s.gp, s.bp) if (s := schedule.stage(e)) else None for e in range(24)]
    assert ratios == [None] * 10 + [(4, 1)] * 4 + [(3, 1)] * 4 + [(2, 1)] * 4 + [(1, 1)] * 2
    assert schedule.stage(1000) == Stage(gp=1, bp=1, epochs=None)


@pytest.mark.parametrize(
    ("schedule", "epochs", "batches", "expected"),
    [
        (ScheduleConfig(warm_up=1), 2, 12, "W" * 12 + "GGGGBGGGGBGG"),
        (ScheduleConfig(warm_up=0, ladder=(Stage(gp=2, bp=3, epochs=1),)), 2, 7, "GGBBBGGBBBBBBB"),
        (ScheduleConfig(warm_up=0, ladder=(Stage(gp=0),)), 1, 3, "BBB"),
        (ScheduleConfig.backpropagation(), 2, 2, "BBBB"),
        # The epoch's third, sixth, ninth ... batch of Phase GP, whatever round it is in.
        (ScheduleConfig(warm_up=0, convert_every=3), 1, 12, "GGBGBGBGGBBG"),
        (ScheduleConfig(warm_up=0, convert_every=1), 1, 6, "BBBBBB"),
    ],
)
def test_phases(schedule, epochs, batches, expected):
    assert letters(schedule, epochs, batches) == expected


def test_rounds_begin_anew_in_every_epoch():
    ladder = (Stage(gp=4, epochs=1), Stage(gp=1, epochs=None))
    assert letters(ScheduleConfig(warm_up=0, ladder=ladder), 3, 3) == "GGG" + "GBG" + "GBG"


def test_equal_time_costs_what_prediction_costs():
    """A third of the batches of Phase GP, rounded down in every epoch."""
    plain, equal = ScheduleConfig(warm_up=4), ScheduleConfig(warm_up=4, convert_every=3)
    counts = [letters(schedule, 20, 46).count("G") for schedule in (plain, equal)]
    assert counts[0] == 4 * (37 + 35 + 31 + 23)
    assert counts[0] - counts[1] == 4 * (37 // 3 + 35 // 3 + 31 // 3 + 23 // 3)


def test_only_phase_gp_does_without_gradients():
    assert [phase.backpropagates for phase in Phase] == [True, True, False]


def test_messages():
    with pytest.raises(ValueError) as error:
        Stage(gp=-1, bp=0, epochs=0)
    assert str(error.value) == (
        "Stage: gp must be an integer of at least 0, not -1; bp must be an integer of at least 1, "
        "not 0; epochs must be None or an integer of at least 1, not 0"
    )
    with pytest.raises(ValueError) as error:
        ScheduleConfig(warm_up=True, convert_every=-3, ladder=[Stage(gp=1)])
    assert str(error.value) == (
        "ScheduleConfig: warm_up must be an integer of at least 0, not True; convert_every must be "
        "an integer of at least 0, not -3; ladder must be a tuple of Stage, not "
        "[Stage(gp=1, bp=1, epochs=4)]"
    )
    with pytest.raises(ValueError, match="only the last stage of ladder may have no end"):
        ScheduleConfig(ladder=(Stage(gp=1, epochs=None), Stage(gp=1)))
