"""Checks of what golden is given."""

__all__ = ["require_names"]


def require_names(what: str, given, wanted) -> None:
    """Raise a ValueError unless the mapping ``given`` has all names ``wanted``; it says which are
    missing, and ``what`` is what they should be in."""
    missing = [name for name in wanted if name not in given]
    if missing:
        raise ValueError(
            f"{what} has no {', '.join(missing)}; it must have all of {', '.join(wanted)}"
        )
