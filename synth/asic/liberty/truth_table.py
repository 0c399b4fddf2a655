"""Boolean expressions of Liberty files as truth tables."""

import re
from functools import cache

__all__ = ["truth_table", "variables"]

_TOKEN = re.compile(r"\s*(?:([A-Za-z_][\w\[\]]*)|([01])|([!'&*|+^()]))")


@cache
def _tokens(expression: str) -> tuple[str, ...]:
    tokens, position, text = [], 0, expression.strip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(f"{expression!r}: unexpected {text[position:].lstrip()[0]!r}")
        tokens.append(match[0].strip())
        position = match.end()
    return tuple(tokens)


def variables(expression: str) -> tuple[str, ...]:
    """Names in ``expression``, each once, in order."""
    names = (token for token in _tokens(expression) if token[0].isalpha() or token[0] == "_")
    return tuple(dict.fromkeys(names))


@cache
def truth_table(expression: str, pins: tuple[str, ...]) -> int:
    """Bit i is the value where bit k of i is the value of ``pins[k]``.

    Operators by precedence: ``!a`` and ``a'``; ``^``; ``&``, ``*`` and juxtaposition; ``|`` and
    ``+``. Raises ``ValueError`` for anything else.
    """
    size = 1 << len(pins)
    ones = (1 << size) - 1
    columns = {
        pin: sum(1 << index for index in range(size) if index >> k & 1)
        for k, pin in enumerate(pins)
    }
    tokens = list(_tokens(expression))
    position = 0

    def peek():
        return tokens[position] if position < len(tokens) else None

    def take():
        nonlocal position
        position += 1
        return tokens[position - 1]

    def factor():
        token = peek()
        if token is None:
            raise ValueError(f"{expression!r}: ends too early")
        take()
        if token == "!":
            return factor() ^ ones
        if token == "(":
            value = either()
            if peek() != ")":
                raise ValueError(f"{expression!r}: ')' is missing")
            take()
        elif token in "01":
            value = ones if token == "1" else 0
        elif token in columns:
            value = columns[token]
        else:
            raise ValueError(f"{expression!r}: {token!r} is none of {', '.join(pins)}")
        while peek() == "'":
            take()
            value ^= ones
        return value

    def exclusive():
        value = factor()
        while peek() == "^":
            take()
            value ^= factor()
        return value

    def both():
        value = exclusive()
        while peek() is not None and peek() not in ("|", "+", ")", "'", "^"):
            if peek() in "&*":
                take()
            value &= exclusive()
        return value

    def either():
        value = both()
        while peek() in ("|", "+"):
            take()
            value |= both()
        return value

    result = either()
    if position != len(tokens):
        raise ValueError(f"{expression!r}: unexpected {tokens[position]!r}")
    return result
