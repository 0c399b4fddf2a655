"""Lists of rows: the fields of ROWS, and what it does.

A row is whatever a VECTOR command has a step for, such as an image. A list holds the numbers of
those rows that are kept; LOAD and STORE find them by the counter of a loop.
"""

import enum
from collections.abc import Iterable, Mapping

from .field import Field
from .loops import COMMAND_BYTES, REPEAT, LoopCounters

__all__ = ["ROWS", "RowAction", "RowList"]


class RowAction(enum.IntEnum):
    """What a ROWS does.

    BEGIN: an empty list; the next VECTOR of the main core fills it. Each of its steps is a row,
    numbered from 0, which is kept if the first lane of its result is positive or NaN.
    PICK: the counter of ``level`` becomes the row at ``position`` of the list; behind the list's
    end the last row that is not kept.
    BRANCH: go on at the command ``first`` plus as many commands as there are rows in the list.
    JOIN: go on at ``first``.

    All but PICK wait until all queues are empty, and set the counter of ``level`` to 0. PICK waits
    for nothing: between the VECTOR that fills the list and the first PICK there must be a BRANCH or
    JOIN.
    """

    BEGIN = 0
    PICK = 1
    BRANCH = 2
    JOIN = 3


#: Fields behind the header of ROWS; the first ones lie where those of REPEAT do.
ROWS = (
    REPEAT[0],
    Field("position", 32, "PICK: place in the list, from 0", default=0),
    Field(
        "first",
        32,
        "BRANCH, JOIN: offset in the memory window of a command of the program",
        default=0,
    ),
    Field("action", 2, "what to do", enum=RowAction),
)


class RowList:
    """What VECTOR and ROWS do to the list.

    Members
    -------
    rows : numbers of the rows that are kept, ascending
    count : of all rows
    listening : the next VECTOR of the main core fills it
    """

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.count, self.listening = 0, False
        self._dropped = 0

    def begin(self) -> None:
        """BEGIN."""
        self.rows, self.count, self.listening, self._dropped = [], 0, True, 0

    def fill(self, kept: Iterable[bool]) -> None:
        """The VECTOR that is listened to has ended; ``kept`` says of each row if it is kept."""
        self.listening = False
        for number, keep in enumerate(kept):
            self.count += 1
            if keep:
                self.rows.append(number)
            else:
                self._dropped = number

    def row(self, position: int) -> int:
        """The row at ``position``."""
        return self.rows[position] if position < len(self.rows) else self._dropped

    def execute(self, fields: Mapping[str, int], counters: LoopCounters) -> int | None:
        """Execute a ROWS; the offset in the memory window of the command that comes, None for the
        one behind it."""
        action, picks = fields["action"], fields["action"] == RowAction.PICK
        counters.values[fields["level"]] = self.row(fields["position"]) if picks else 0
        if action == RowAction.BEGIN:
            self.begin()
        if action not in (RowAction.BRANCH, RowAction.JOIN):
            return None
        steps = len(self.rows) if action == RowAction.BRANCH else 0
        return fields["first"] + steps * COMMAND_BYTES
