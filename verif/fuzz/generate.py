"""Random cases, each from its number alone."""

import random

from hw.config import AdaGPConfig
from hw.isa.batch import EPOCH_WIDTH
from hw.isa.encoding import COMMAND_BYTES, Opcode
from hw.registers.map import MEMORY_BASE_ALIGNMENT_BITS, register_map

from .case import NOTHING, Case, Fill, Order, Slave
from .commands import CommandFuzzer
from .good import window_registers

__all__ = ["Generator"]

_PAGE = 1 << MEMORY_BASE_ALIGNMENT_BITS
_HALT = int(Opcode.HALT)
#: Longest latency of a slave.
LATENCY = 300


class Generator:
    """Cases for a configuration.

    Parameters
    ----------
    seed : with a case's number it decides all of it
    adversarial : good programs only, on slaves that are slow and unfair
    """

    def __init__(self, config: AdaGPConfig, goods, *, seed: int, adversarial: bool = False):
        self.config, self.goods, self.seed = config, goods, seed
        self.adversarial = adversarial
        self.registers = register_map(config)
        self.commands = CommandFuzzer(config, [c for good in goods for c in good.commands])
        self.writable = [r for r in self.registers if r.writable and r.name != "CONTROL"]
        # Reading and writing what the run does not depend on; offsets without a register, too.
        self.harmless = [
            register.offset
            for register in self.registers
            if register.name != "CONTROL" and register.locked and not register.between_batches
        ]
        self.stop = self._field("CONTROL", "STOP")
        self.offsets = [r.offset for r in self.registers]

    def _field(self, register, name):
        return next(f.mask for f in self.registers[register].fields if f.name == name)

    def case(self, number: int, *, fresh: bool = False) -> Case:
        """Case ``number``; ``fresh``: the accelerator is switched on before it."""
        rng = random.Random(self.seed << 40 | number << 1 | self.adversarial)
        top = 1 << self.config.axi_address_width
        good = rng.randrange(len(self.goods))
        common = {
            "fresh": int(fresh),
            "good": good,
            "good_base": _PAGE * rng.randrange(min(top, 1 << 40) // _PAGE - 64),
            "pauses": rng.choice((0, 0, 0, 3)),
        }
        if self.adversarial:
            return Case(slave=self._slave(rng, rng.choice((1, 2, 3))), **common)
        slow = rng.choices((0, 1, 2, 3), (50, 35, 12, 3))[0]
        values = self._window(rng, top)
        values["commands"] = ()
        values["commands"] = commands = self._program(rng, values)
        values["program_size"] = COMMAND_BYTES * len(commands)
        if rng.random() < 0.03:
            values["program_size"] = rng.choice((0, 64, 100, rng.getrandbits(12), 0xFFFFFFFF))
        values["stop_at"] = rng.randrange(20, 240 + 240 * slow)
        self._misfortune(rng, values, common)
        watchdog = values.get("watchdog", 0)
        registers = window_registers(
            self.registers,
            **{name: values[name] for name in ("base", "size", "program", "program_size")},
            **self._other_registers(rng, commands, watchdog),
        )
        return Case(
            slave=self._slave(rng, slow, errors=True), registers=registers,
            script=self._script(rng, values["stop_at"]),
            fill=rng.choices(list(Fill), (2, 1, 6, 1))[0], fill_seed=rng.getrandbits(32),
            **common, **values,
        )  # fmt: skip

    def _window(self, rng, top):
        """Memory window, and the program's place in it."""
        size = rng.choice((0x1000, 0x2000, 0x4000, rng.randrange(0x800, 0x4000)))
        if rng.random() < 0.06:
            size = rng.choice(
                (0, rng.randrange(256), 1 << 20, 1 << 32, rng.getrandbits(33) % (1 << 32))
            )
        base = _PAGE * rng.choice((rng.randrange(64), rng.randrange(top // _PAGE)))
        if rng.random() < 0.1:  # at the end of the address space, and beyond
            base = max(0, top - _PAGE * rng.randrange(1, 6))
        program = COMMAND_BYTES * rng.choice((0, 0, 1, rng.randrange(16)))
        if rng.random() < 0.03:
            program = rng.choice((4, size & 0xFFFFFFC0, rng.getrandbits(32)))
        return {"base": base, "size": size, "program": program}

    def _program(self, rng, values):
        kind = rng.random()
        if kind < 0.5:
            commands = list(rng.choice(self.goods).commands)
            if rng.random() < 0.3 and len(commands) > 4:
                del commands[rng.randrange(4, len(commands)) :]
            values["commands"] = commands
            for _ in range(rng.choice((1, 1, 2, 3, 5))):
                place = rng.randrange(len(commands))
                change = rng.random()
                if change < 0.7:
                    commands[place] = self.commands.mutate(rng, commands[place], values)
                elif change < 0.78 and len(commands) > 1:
                    del commands[place]
                elif change < 0.86:
                    commands.insert(place, commands[rng.randrange(len(commands))])
                else:
                    commands.insert(place, self.commands.random(rng, values))
            return tuple(commands)
        commands = values["commands"] = []
        for _ in range(rng.randrange(1, 9)):
            if kind < 0.97:
                commands.append(self.commands.random(rng, values))
            else:
                commands.append(self.commands.garbage(rng))
        if rng.random() < 0.9:
            commands.append(_HALT)
        return tuple(commands)

    def _misfortune(self, rng, values, common):
        """A watchdog, a reset, a slave that stops answering."""
        kind = rng.random()
        if rng.random() < 0.3:
            values["watchdog"] = rng.choice((rng.randrange(1, 40), rng.randrange(40, 400)))
        if kind < 0.12:
            values["reset_at"] = rng.randrange(1, 200)
            values["reset_cycles"] = rng.choice((1, 1, 2, 5))
            values["reset_slave"] = rng.choice((0, 0, 1))
            values["reset_wait"] = int(rng.random() < 0.7)
        elif kind < 0.2:
            values["dead_at"] = rng.randrange(1, 200)
            values["dead_cycles"] = rng.choice((100, 400, 1000))
            small = values["size"] < 1 << 20
            if values.get("watchdog") and small and rng.random() < 0.5:
                values["restart"] = rng.randrange(1, 400)
                # Data on its way from the run before must not meet the good program's.
                page = values["base"] // _PAGE + (1 << 19)
                common["good_base"] = _PAGE * (page % ((1 << 20) - 64))

    def _slave(self, rng, slow, *, errors=False):
        """From 0, which always answers at once, to 3, with latencies up to :data:`LATENCY`."""
        share = rng.choice((0, 0, 0, 0, 600, 6000)) if errors else 0
        strays = 2000 if errors and rng.random() < 0.04 else 0
        if slow == 0:
            return Slave(
                seed=rng.getrandbits(32), read_errors=share, write_errors=share, strays=strays
            )
        longest = (0, 8, 40, LATENCY)[slow]
        least = (0, 128, 40, 16)[slow]
        high = [rng.randrange(longest + 1) for _ in range(2)]
        return Slave(
            seed=rng.getrandbits(32),
            **{f"ready_{name}": rng.randrange(least, 257) for name in ("aw", "w", "ar")},
            **{f"gap_{name}": rng.randrange(257 - least) for name in "rb"},
            read_low=rng.randrange(high[0] + 1), read_high=high[0],
            write_low=rng.randrange(high[1] + 1), write_high=high[1],
            interleave=rng.randrange(2), order=rng.choice(list(Order)),
            late_writes=rng.randrange(2), early_reads=rng.randrange(2),
            read_errors=share, write_errors=share, strays=strays,
        )  # fmt: skip

    def _other_registers(self, rng, commands, watchdog):
        """Those that are of interest for the commands, and sometimes any."""
        values = {"WATCHDOG": watchdog}
        codes = {command & 0xFF for command in commands}
        if Opcode.BATCH in codes and "BATCHES" in self.registers:
            values |= {
                "BATCHES": rng.choice((0, 1, 2, 5, 0xFFFFFFFF)),
                "BATCHES_READY": rng.choice((0, 1, 2, 5, 0xFFFFFFFF)),
            }
            if rng.random() < 0.3:
                values |= {
                    "EPOCH": rng.choice((0, 1, (1 << EPOCH_WIDTH) - 1)),
                    "EPOCH_BATCH": rng.choice((0, 1, 3, 0xFFFFFFFF)),
                    "EPOCH_BATCHES": rng.choice((0, 1, 4, 0xFFFFFFFF)),
                    "WARM_UP": rng.randrange(3),
                    "STAGE0": rng.getrandbits(32),
                }
        if rng.random() < 0.15:
            for _ in range(3):
                register = rng.choice(self.writable)
                if register.name not in values and not register.name.startswith(("MEM", "PROG")):
                    values[register.name] = rng.getrandbits(32)
        return values

    def _script(self, rng, stop_at):
        """Register accesses during the run: reads, and writes that must be refused or that only
        give a batch its inputs."""
        if rng.random() < 0.7:
            return ()
        actions = []
        for _ in range(rng.randrange(1, 4)):
            write, read = (16, 0, 0), NOTHING
            kind = rng.random()
            if kind < 0.5:
                offset = rng.choice(self.harmless)
                if rng.random() < 0.2:
                    offset = rng.choice((0x0, 0x4, 0xFFC, 0x200))
                write = (rng.randrange(16), offset, rng.getrandbits(32))
            elif kind < 0.7 and "BATCHES_READY" in self.registers:
                name = rng.choice(("BATCHES", "BATCHES_READY"))
                write = (15, self.registers[name].offset, rng.randrange(6))
            elif kind < 0.8:  # also twice, and when the run is over
                write = (15, self.registers["CONTROL"].offset, self.stop)
            if write[0] == 16 or rng.random() < 0.5:
                read = rng.choice((*self.offsets, 0xFFC))
            actions.append((rng.randrange(stop_at), write[1], write[2], write[0], read))
        return tuple(sorted(actions))
