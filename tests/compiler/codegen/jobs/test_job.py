"""Where the same jobs come again."""

import random

from compiler.codegen.jobs.job import Job, JobLoop, find_loops


def jobs(*likes):
    """A job for each (like, at...)."""
    return [Job((), print, like=like, at=tuple(at)) for like, *at in likes]


def find(found, least=3, start=0):
    return next(find_loops(found, start, len(found), lambda size: least), None)


def test_one_job_after_the_other():
    found = jobs(("first", 0), *(("a", n) for n in range(5)), ("last", 5))
    assert find(found) == JobLoop(first=1, size=1, count=5)
    assert find(found, start=3) == JobLoop(first=3, size=1, count=3)
    assert find(found, least=6) is None


def test_several_jobs_in_an_iteration():
    found = jobs(*((name, n) for n in range(4) for name in "abc"), ("a", 4))
    assert find(found) == JobLoop(first=0, size=3, count=4)


def test_the_longest_is_taken():
    """Rows of an image have two parts that are alike; images go on."""
    found = jobs(*((name, n, row) for n in range(6) for row, name in enumerate("aab")))
    assert find(found) == JobLoop(first=0, size=3, count=6)


def test_an_image_with_many_jobs_that_are_alike():
    """Rows of an image are parts of two sizes in turn, and the next image is far behind."""
    rows = (0, 2, 5, 7, 10, 12, 15, 17)
    found = jobs(*(("ab"[row % 5 == 0], n, row) for n in range(4) for row in rows))
    found += jobs(("end", 4, 0))
    assert find(found) == JobLoop(first=0, size=8, count=4)


def test_places_must_move_evenly():
    found = jobs(*(("a", n) for n in (0, 1, 2, 4, 6, 8, 10, 11)))
    assert find(found) == JobLoop(first=0, size=1, count=3)
    assert find(found, start=2) == JobLoop(first=2, size=1, count=5)


def test_a_loop_behind_one_that_is_too_short():
    """Jobs at the same distance as those of the loop (a), which ends them: it begins where it
    does, and not an iteration later."""
    likes = [("a", 0), ("b", 0), ("x", 0), ("a", 1), ("b", 1), ("c", 1)]
    found = jobs(*likes, *((name, n) for n in range(2, 5) for name in "abc"))
    assert find(found) == JobLoop(first=3, size=3, count=4)


def test_jobs_without_likeness_end_a_loop():
    found = jobs(("a", 0), ("a", 1), (None,), ("a", 2), ("a", 3))
    assert find(found) is None


def test_loops_come_one_behind_the_other(seed):
    """Each is the first one behind those before."""
    rng = random.Random(seed)
    for _ in range(50):
        parts = [(rng.choice(["a", "ab", "abc"]), rng.randrange(2, 6)) for _ in range(4)]
        likes = [(name, n) for part, count in parts for n in range(count) for name in part]
        found = jobs(*likes)
        loops = list(find_loops(found, 0, len(found), lambda size: 3))
        ends = [0, *(loop.end for loop in loops)]
        assert loops == [loop for end in ends if (loop := find(found, start=end))]


def test_every_iteration_is_like_the_first(seed):
    rng = random.Random(seed)
    for _ in range(200):
        found = jobs(*((rng.choice("ab"), rng.randrange(2)) for _ in range(rng.randrange(40))))
        loop = find(found)
        if loop is None:
            continue
        assert loop.count >= 3 and loop.end <= len(found)
        for number in range(loop.first, loop.end - loop.size):
            assert found[number].like == found[number + loop.size].like
        for number in range(loop.first, loop.end - 2 * loop.size):
            a, b, c = (found[number + n * loop.size].at[0] for n in range(3))
            assert b - a == c - b
