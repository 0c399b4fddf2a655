"""Nested affine loops: addresses, coordinates and loop ends for a data-flow engine."""

from amaranth import Cat, Const, Module, Mux, Shape, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Affine", "LoopNest"]


class Affine:
    """A track ``origin + sum(index[loop] * stride[loop])``, modulo ``2 ** width``.

    Parameters
    ----------
    shape : shape-castable
        Shape of origin and value, for example ``24`` or ``signed(18)``.
    strides : dict of loop name to shape-castable
        Shape of each loop's stride; loops not named have stride 0 and cost nothing.
    """

    def __init__(self, shape, strides):
        self.shape = Shape.cast(shape)
        self.strides = {loop: Shape.cast(stride) for loop, stride in strides.items()}
        if not self.strides:
            raise ValueError("An affine track needs a stride for at least one loop")


class LoopNest(wiring.Component):
    """Walk nested loops, one step per cycle, and follow affine functions of their indices.

    A user gives counts, strides and origins, pulses ``start``, and from
    :attr:`LATENCY` cycles later finds the first point on the outputs, with ``valid``. In any cycle
    with ``valid``, ``next`` moves on to the following point, which is there in the next cycle.
    ``next`` at the last point ends the walk: ``valid`` falls.

    Parameters
    ----------
    counts : dict of str to int
        Loop name -> width in bits of its count, innermost loop first.
    tracks : dict of str to :class:`Affine`
        What to follow.
    endless : bool
        ``next`` at the last point goes on to the first one, which is there in the next cycle.
    checkpoint : bool
        The walk can go back to a point: adds ``save`` and ``restore``.

    Attributes
    ----------
    LATENCY : int
        Cycles from ``start`` to ``valid``: 2.

    Members
    -------
    start : In(1)
        Begin a walk, in any cycle; a walk that is under way is dropped. May coincide with the
        last ``next`` of the walk before.
    stop : In(1)
        Drop the walk: ``valid`` is low from the next cycle on. ``start`` wins over it.
    next : In(1)
        Advance; has no effect while ``valid`` is low.
    save : In(1)
        The point shown in this cycle is the one to go back to.
    restore : In(1)
        The next cycle shows the point of the last ``save``, which may be in this very cycle.
        Wins over ``next``; not together with ``start`` or ``stop``.
    count : In(struct)
        Iterations of each loop, at least 1 (0 means ``2 ** width``). Like ``stride`` and
        ``origin``: read in the cycle of ``start`` and later, so constant until the walk ends.
    stride : In(struct of structs)
        ``stride[track][loop]``.
    origin : In(struct)
        ``origin[track]``.
    valid : Out(1)
        The outputs below show a point of the walk.
    value : Out(struct)
        ``value[track]``.
    first, last : Out(struct)
        One bit per loop: its index is 0; it is in its last iteration.
    final : Out(1)
        Every loop is in its last iteration.

    After reset no walk is under way. All outputs come from registers.
    """

    LATENCY = 2

    def __init__(self, counts, tracks, *, endless=False, checkpoint=False):
        self._loops = tuple(counts)
        self._tracks = dict(tracks)
        self._endless = endless
        self._checkpoint = checkpoint
        if not self._loops:
            raise ValueError("A loop nest needs at least one loop")
        for name, track in self._tracks.items():
            if not set(track.strides) <= set(self._loops):
                unknown = ", ".join(sorted(set(track.strides) - set(self._loops)))
                raise ValueError(
                    f"Track {name!r} names loop {unknown}; loops are {', '.join(self._loops)}"
                )
        shapes = data.StructLayout({n: t.shape for n, t in self._tracks.items()})
        flags = data.StructLayout(dict.fromkeys(self._loops, 1))
        super().__init__(
            {
                "start": In(1),
                "stop": In(1),
                "next": In(1),
                **({"save": In(1), "restore": In(1)} if checkpoint else {}),
                "count": In(data.StructLayout(dict(counts))),
                "stride": In(
                    data.StructLayout(
                        {n: data.StructLayout(t.strides) for n, t in self._tracks.items()}
                    )
                ),
                "origin": In(shapes),
                "valid": Out(1),
                "value": Out(shapes),
                "first": Out(flags),
                "last": Out(flags),
                "final": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()

        # Only ``valid`` and what leads to it is reset; a start loads everything else.
        # Two stages. Stage A runs one point ahead: it counts, and decides which loop advances
        # next. Stage B adds the strides. Both step together.
        step = Signal()
        filling = Signal()
        m.d.comb += step.eq(self.next | ~self.valid)

        # All that makes up a point, for checkpoints.
        self._state = [self.first.as_value(), self.last.as_value(), self.final, self.valid]

        # ends[l]: loops 0..l are all in their last iteration, so loop l wraps in this step.
        # advance[l]: loop l goes on to its next iteration and the loops inside it start again.
        ends, advance = [], []
        below = Const(1)
        first = Signal.like(self.first, reset_less=True)
        last = Signal.like(self.last, reset_less=True)
        self._state += [first.as_value(), last.as_value()]
        for loop in self._loops:
            advance.append(below & ~last[loop])
            below = Signal(name=f"end_{loop}")
            m.d.comb += below.eq((ends[-1] if ends else 1) & last[loop])
            ends.append(below)
        for level, loop in enumerate(self._loops):
            self._count(m, loop, step, ends[level], advance[level], first[loop], last[loop])

        with m.If(step):
            m.d.sync += [
                self.first.eq(first),
                self.last.eq(last),
                self.final.eq(ends[-1]),
                self.valid.eq(filling | (self.valid & (self._endless | ~self.final))),
                filling.eq(0),
            ]
        with m.If(self.stop):
            m.d.sync += [self.valid.eq(0), filling.eq(0)]
        with m.If(self.start):
            m.d.sync += [self.valid.eq(0), filling.eq(1)]

        wrap = ends[-1] if self._endless else Const(0)
        for name, track in self._tracks.items():
            self._follow(m, name, track, step, advance, wrap)
        if self._checkpoint:
            for number, register in enumerate(self._state):
                saved = Signal(register.shape(), name=f"saved{number}", reset_less=True)
                with m.If(self.save):
                    m.d.sync += saved.eq(register)
                with m.If(self.restore):
                    m.d.sync += register.eq(Mux(self.save, register, saved))
        return m

    def _count(self, m, loop, step, ends, advance, first, last):
        """Stage A of one loop: its counter and the first and last marks of its index."""
        count = self.count[loop]
        # ahead is the index plus 2: it equals the count in the last iteration but one, whatever
        # the count is, so that ``last`` is ready without subtracting.
        ahead = Signal(count.shape(), name=f"ahead_{loop}", reset_less=True)
        single = Signal(name=f"single_{loop}", reset_less=True)
        start_value = 2 & ((1 << len(count)) - 1)
        # Written so that restarting goes to the reset, advancing to the enable of the flip-flops.
        is_single = count == 1
        self._state.append(ahead)
        with m.If(self.start):
            m.d.sync += single.eq(is_single)
        with m.If(self.start | (step & ends)):
            m.d.sync += [ahead.eq(start_value), first.eq(1)]
        with m.Elif(step & advance):
            m.d.sync += [ahead.eq(ahead + 1), first.eq(0)]
        with m.If(self.start):
            m.d.sync += last.eq(is_single)
        with m.Elif(step & (ends | advance)):
            m.d.sync += last.eq(Mux(ends, single, ahead == count))

    def _follow(self, m, name, track, step, advance, wrap):
        """Stage B of one track.

        ``base[l]`` is the value with the indices inside loop l at 0. When loop l advances, the
        new value ``base[l] + stride[l]`` replaces the bases of l and of all loops inside it. A
        loop without stride shares the base of the next loop outside it that has one.
        """
        value, origin = Signal.like(self.value[name], name=name, reset_less=True), self.origin[name]
        m.d.comb += self.value[name].eq(value)
        levels = [i for i, loop in enumerate(self._loops) if loop in track.strides]
        base = {levels[0]: value} | {
            level: Signal.like(value, name=f"{name}_base{level}", reset_less=True)
            for level in levels[1:]
        }
        # One hot: which base (last: the origin) the next step adds to; which bases it writes.
        pick, write = (
            {level: Signal(name=f"{name}_{what}{level}", reset_less=True) for level in levels}
            for what in ("pick", "write")
        )
        restart = Signal(name=f"{name}_restart", reset_less=True)
        addend = Signal(value.shape(), name=f"{name}_addend", reset_less=True)

        self._state += [*base.values(), *pick.values(), *write.values(), restart, addend]
        total = Signal.like(value, name=f"{name}_next")
        legs = [Mux(pick[level], Cat(base[level]), 0) for level in levels]
        legs.append(Mux(restart, Cat(origin), 0))
        m.d.comb += total.eq(_any(legs) + addend)
        with m.If(step):
            for level in levels:
                with m.If(write[level]):
                    m.d.sync += base[level].eq(total)

            outer = [
                min((at for at in levels if at >= level), default=None)
                for level in range(len(self._loops))
            ]
            for level in levels:
                users = [advance[at] for at, base_of in enumerate(outer) if base_of == level]
                m.d.sync += pick[level].eq(_any(users))
                m.d.sync += write[level].eq(_any([*advance[level:], wrap]))
            m.d.sync += restart.eq(
                _any([wrap, *(advance[at] for at, base_of in enumerate(outer) if base_of is None)])
            )
            strides = {
                level: _extend(self.stride[name][self._loops[level]], len(value))
                for level in levels
            }
            m.d.sync += addend.eq(
                _any([Mux(advance[level], strides[level], 0) for level in levels])
            )
        with m.If(self.start):
            m.d.sync += [pick[level].eq(0) for level in levels]
            m.d.sync += [write[level].eq(1) for level in levels]
            m.d.sync += [restart.eq(1), addend.eq(0)]


def _any(values):
    """Bitwise or of all, 0 of none."""
    result = Const(0)
    for value in values:
        result = result | value
    return result


def _extend(value, width):
    """The low ``width`` bits of ``value``, extended by its sign."""
    sign = value[-1] if value.shape().signed else Const(0)
    return Cat(value, *[sign] * width)[:width]
