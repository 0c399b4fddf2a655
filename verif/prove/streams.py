"""That a queue hands on what it is given: nothing lost, nothing twice, in order, unchanged."""

from amaranth.hdl import Mux, Signal

__all__ = ["QueueCheck", "add_hold_claims"]


class QueueCheck:
    """Counts what is inside a queue and follows one item, any, through it.

    The solver chooses the item (the free input ``pick``); so what is proven of it is proven of all.

    Attributes
    ----------
    level : items inside
    tracked : the chosen item is inside
    ahead : items that leave before it
    item : its payload
    """

    def __init__(self, harness, *, entered, payload, offered, taken, output, capacity):
        m = harness.m
        self.level = level = Signal(range(capacity + 2))
        self.ahead = ahead = Signal(range(capacity + 1))
        self.tracked = tracked = Signal()
        self.item = item = Signal(len(payload), reset_less=True)
        for name, signal in (("level", level), ("ahead", ahead), ("tracked", tracked)):
            harness.watch(f"check_{name}", signal)
        harness.watch("check_item", item)
        pick = harness.free("pick")
        m.d.sync += level.eq(level + entered - taken)
        with m.If(tracked & taken):
            m.d.sync += [ahead.eq(ahead - 1), tracked.eq(ahead != 0)]
        with m.If(entered & pick & ~tracked):
            m.d.sync += [tracked.eq(1), item.eq(payload), ahead.eq(level - taken)]

        harness.claim("nothing leaves that is not inside", ~offered | (level != 0))
        harness.claim(
            "what entered leaves in its turn, unchanged",
            ~(tracked & offered & (ahead == 0)) | (output == item),
        )
        harness.claim("there is never more inside than fits", level <= capacity)
        harness.invariant("an item that is followed is inside", ~tracked | (ahead < level))
        add_hold_claims(harness, offered=offered, taken=taken, output=output)
        harness.cover("an item that was followed leaves", tracked & taken & (ahead == 0))
        harness.cover("it is full", level == capacity, within=capacity + 2)

    def at(self, words, start):
        """Whether the item followed is where it should be: ``words`` is a ring, ``start`` the place
        of the first to leave."""
        count = len(words)
        place = start + self.ahead
        place = Mux(place >= count, place - count, place)
        held = 0
        for index, word in enumerate(words):
            held |= (place == index) & (word == self.item)
        return ~self.tracked | held


def add_hold_claims(harness, *, offered, taken, output, name=""):
    """The rule of a stream: what is offered stays, unchanged, until it is taken."""
    held = harness.delayed(f"held{name}".replace(" ", "_"), offered & ~taken)
    before = harness.delayed(f"output_before{name}".replace(" ", "_"), output)
    harness.claim(f"what is offered stays until it is taken{name}", ~held | offered)
    harness.claim(f"its payload does not change{name}", ~held | (output == before))
