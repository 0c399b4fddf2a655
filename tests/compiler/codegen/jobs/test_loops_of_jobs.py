"""Where the same jobs come again in a list."""

from compiler.codegen.jobs.job import Job
from compiler.codegen.jobs.loops_of_jobs import Jobs


def listed(*runs):
    """Jobs: for every run (what its jobs are like, iterations), each job as far as the run is."""
    found = []
    for number, (likes, count) in enumerate(runs):
        for n in range(count):
            found += [Job((), print, like=like, at=(number, n)) for like in likes]
    return found


def parts(stretches):
    return [(part.begin, part.end, part.size, part.loop) for part in stretches]


def jobs_of(found):
    return Jobs(found, lambda job: (ord(job.like[0]), 2))


def test_one_loop_among_others():
    jobs = jobs_of(listed(("x", 1), ("ab", 20), ("y", 1)))
    assert parts(jobs.long()) == [(0, 1, 1, False), (1, 41, 2, True), (41, 42, 1, False)]
    assert parts(jobs.short()) == parts(jobs.long())
    loop = jobs.long()[1]
    assert loop.iterations == 20
    assert loop.cycles == ord("a") + ord("b")
    assert loop.time == 20 * loop.cycles
    assert loop.within(2.5 * loop.cycles) == 5


def test_what_is_taken_is_gone():
    (loop,) = jobs_of(listed(("abc", 12))).long()
    loop.take(3 * 11)
    assert (loop.jobs, loop.iterations, loop.loop) == (3, 1, True)
    loop.take(1)
    assert (loop.jobs, loop.size, loop.loop) == (2, 1, False)


def test_few_iterations_are_no_loop_unless_they_are_long():
    few = jobs_of(listed(("abc", 4)))
    assert parts(few.long()) == [(0, 12, 1, False)]
    long = [chr(ord("a") + n) for n in range(70)]
    assert parts(jobs_of(listed((long, 4))).long()) == [(0, 280, 70, True)]


def test_uneven_distances_are_no_loop():
    """Jobs that are like each other, but the further apart the later they come."""
    found = [Job((), print, like="a", at=(n * n,)) for n in range(40)]
    assert parts(jobs_of(found).long()) == [(0, 40, 1, False)]
    assert parts(jobs_of(found).short()) == [(0, 40, 1, False)]


def test_no_likeness_is_no_loop():
    found = [Job((), print) for _ in range(40)]
    assert parts(Jobs(found, lambda job: (1, 1)).long()) == [(0, 40, 1, False)]


def test_loops_in_loops():
    """40 times "a", 30 times "b", and that 8 times over."""
    found = []
    for outer in range(8):
        found += [Job((), print, like="a", at=(outer, n)) for n in range(40)]
        found += [Job((), print, like="b", at=(outer, n)) for n in range(30)]
    jobs = jobs_of(found)
    assert parts(jobs.long()) == [(0, 560, 70, True)]
    assert [part.size for part in jobs.short()] == [1] * 16
    assert parts(jobs.middle()) == parts(jobs.long())
    # Three iterations of the outer loop, with six of each inner one.
    assert jobs.written(0, 560) == 3 * 2 * 6 * 2
    assert jobs.commands(0, 560) == 2 * 560


def test_a_loop_that_is_very_long_is_none_in_the_middle():
    likes = [chr(ord("a") + n) for n in range(600)]
    jobs = jobs_of(listed((likes, 4)))
    assert parts(jobs.long()) == [(0, 2400, 600, True)]
    assert parts(jobs.middle()) == [(0, 2400, 1, False)]
