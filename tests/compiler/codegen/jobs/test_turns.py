"""How jobs of two lanes take turns."""

from itertools import groupby

import pytest

from compiler.codegen.jobs.job import Job, Need
from compiler.codegen.jobs.loops_of_jobs import Jobs
from compiler.codegen.jobs.turns import in_turns


def jobs(lane, count, words, *, size=2):
    """A loop of ``size`` jobs in an iteration."""
    return [
        Job((Need((lane, n), words),), print, lane=lane, like=(lane, n % size), at=(n // size,))
        for n in range(count)
    ]


def cost(job):
    """Cycles as words of the first need, and three commands."""
    return job.needs[0].words, 3


def turns(main, beside):
    return in_turns(Jobs(main, cost), Jobs(beside, cost))


@pytest.mark.parametrize(("counts", "words"), [((40, 20), (1, 2)), ((64, 96), (3, 1))])
def test_turns(counts, words):
    lanes = [jobs(lane, *pair) for lane, pair in enumerate(zip(counts, words, strict=True))]
    found, more = turns(*lanes)
    for lane, wanted in enumerate(lanes):
        assert [job for job in found if job.lane == lane] == wanted
    # No lane is alone for long before the other one is done, and few of the commands are written
    # in loops.
    parts = [len(list(part)) for _, part in groupby(job.lane for job in found)]
    assert max(parts[:-1]) <= 6
    assert parts[-1] <= counts[0] / 3
    assert more < len(found)


def test_what_makes_no_loops_is_over_soon():
    """Jobs that are like no other come beside the first iterations of the longer lane, each for as
    many cycles and half as many more; what is left of that lane is a loop of its own."""
    main = jobs(0, 200, 1)
    beside = [job._replace(like=None) for job in jobs(1, 20, 2)]
    found, more = turns(main, beside)
    last = max(place for place, job in enumerate(found) if job.lane)
    assert last < 20 + 1.5 * 20 * 2 + 2
    assert [job.lane for job in found[:8]].count(1) == 2
    # By themselves six iterations of the one are written, and all of the other.
    assert more < 3 * (last + 20) - 3 * (6 * 2 + 20)


def test_long_loops_with_short_ones_inside():
    """Two lanes whose loops have loops inside: no turn of the outer ones is even, those of the
    inner ones are, and so most commands need not be written."""
    main = [
        Job((Need(n, 10),), print, like=("pass" if n % 43 < 41 else n % 43,), at=(n // 43, n % 43))
        for n in range(43 * 12)
    ]
    beside = [
        Job((Need(n, 4),), print, lane=1, like=("image" if n % 130 < 128 else n % 130,),
            at=(n // 130, n % 130))
        for n in range(130 * 3)
    ]  # fmt: skip
    found, more = turns(main, beside)
    assert [job for job in found if job.lane == 0] == main
    assert [job for job in found if job.lane == 1] == beside
    assert more < 3 * len(found) / 2


def test_a_loop_has_a_pace_between_both():
    """If the other lane were two thirds as fast as the main one, three of its iterations would come
    beside five, too few times for a loop; both lanes would end together with three beside one, too
    seldom as well. One beside one is between these, and comes often enough."""
    main = jobs(0, 34 * 42, 49, size=34)
    beside = jobs(1, 8 * 14, 84, size=8)
    beside += [Job((Need(n, 840),), print, lane=1) for n in range(15)]
    found, more = turns(main, beside)
    for lane, wanted in enumerate((main, beside)):
        assert [job for job in found if job.lane == lane] == wanted
    lanes = [job.lane for job in found]
    assert lanes[: 14 * 42] == lanes[:42] * 14 and sum(lanes[:42]) == 8
    # Six iterations of it are written, then what comes beside single jobs, and six of what is left.
    singles = len(lanes) - 14 * 42 - 566
    alone = 6 * 34 + 6 * 8 + 15
    assert lanes[-566:] == [0] * 566 and lanes[-567]
    assert more == 3 * (6 * 42 + singles + 6 * 34 + 566 % 34 - alone)


def test_nothing_beside():
    main = jobs(0, 20, 1)
    assert turns(main, []) == (main, 0)
