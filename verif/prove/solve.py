"""Induction and bounded runs over a model, by the solver Bitwuzla."""

from dataclasses import dataclass

__all__ = ["OutOfTime", "Trace", "check_base", "check_cover", "check_run", "check_step"]


class OutOfTime(Exception):
    """The solver has not found an answer within its time."""


@dataclass(frozen=True, kw_only=True)
class Trace:
    """A counterexample or a witness.

    Members
    -------
    broken : names of the claims and invariants that do not hold in the last cycle
    cycles : per cycle the watched signals, dict of name to number
    widths : of the signals, in bits
    start : "reset" (the first cycle is one with reset) or "any state"
    """

    broken: tuple[str, ...]
    cycles: tuple[dict[str, int], ...]
    widths: dict[str, int]
    start: str


def check_base(harness, model, *, limit: float) -> Trace | None:
    """Whatever the registers held: in the cycle behind a reset everything holds."""
    proven = harness.claims | harness.invariants
    return _search(harness, model, proven, cycles=2, reset=True, limit=limit)


def check_step(harness, model, *, limit: float) -> Trace | None:
    """Where everything holds in a cycle, whatever the registers hold, it holds in the next."""
    proven = harness.claims | harness.invariants
    return _search(harness, model, proven, cycles=2, reset=False, limit=limit)


def check_run(harness, model, *, cycles: int, limit: float) -> Trace | None:
    """A run that breaks a claim in cycle number ``cycles`` behind a reset."""
    return _search(harness, model, harness.claims, cycles=cycles + 1, reset=True, limit=limit)


def check_cover(harness, model, name: str, *, limit: float) -> Trace | None:
    """A run behind a reset that comes by where the cover ``name`` holds, or None."""
    for cycles in harness.cover_cycles[name]:
        trace = _search(
            harness, model, {}, cycles=cycles + 1, reset=True, goal=harness.covers[name],
            limit=limit,
        )  # fmt: skip
        if trace:
            return trace
    return None


def _search(harness, model, proven, *, cycles, reset, goal=None, limit):
    """A sequence of ``cycles`` that keeps the assumptions and ends where something of ``proven``
    does not hold, or that comes by where ``goal`` does. It begins with a reset, or else in any
    state, and then all of ``proven`` holds until the last cycle."""
    import bitwuzla

    states = [f"s{index}" for index in range(cycles)]
    lines = ["(set-logic QF_BV)", model.text]
    lines += [f"(declare-const {state} |top_s|)" for state in states]
    for index, state in enumerate(states):
        resetting = reset and index == 0
        lines.append(f"(assert (= {_read('resetting', state)} {str(resetting).lower()}))")
        if not resetting:
            lines += [f"(assert {_read(name, state)})" for name in harness.assumptions.values()]
        if not reset and index < cycles - 1:
            lines += [f"(assert {_read(name, state)})" for name in proven.values()]
        if index:
            before = states[index - 1]
            lines.append(f"(assert (|top_t| {before} {state}))")
            lines += [
                f"(assert (= {_read(name, before)} {_read(name, state)}))"
                for name in harness.constants
            ]
    if goal is None:
        holds = " ".join(_read(name, states[-1]) for name in proven.values())
        lines.append(f"(assert (not (and true {holds})))")
    else:
        reached = " ".join(_read(goal, state) for state in states[1:])
        lines.append(f"(assert (or false {reached}))")

    options = bitwuzla.Options()
    options.set(bitwuzla.Option.PRODUCE_MODELS, True)
    options.set(bitwuzla.Option.TIME_LIMIT_PER, int(1000 * limit))
    parser = bitwuzla.Parser(bitwuzla.TermManager(), options)
    parser.parse("\n".join(lines), True, False)
    solver = parser.bitwuzla()
    result = solver.check_sat()
    if result == bitwuzla.Result.UNSAT:
        return None
    if result != bitwuzla.Result.SAT:
        raise OutOfTime(f"no answer within {limit:g} s")

    def value(name, state):
        return int(solver.get_value(parser.parse_term(_read(name, state))).value(10))

    if goal is not None:
        states = states[: next(n for n in range(1, cycles) if value(goal, states[n])) + 1]
    names = [name for name in harness.watched if name in model.widths]
    return Trace(
        broken=tuple(name for name, bit in proven.items() if not value(bit, states[-1])),
        cycles=tuple({name: value(name, state) for name in names} for state in states),
        widths={name: model.widths[name] for name in names},
        start="reset" if reset else "any state",
    )


def _read(name, state):
    return f"(|top_n {name}| {state})"
