"""A Verilog module that watches the commands, waits and errors of the simulated accelerator.

:func:`monitor_verilog` makes it for one configuration; it is bound to the top module of
``verif/sim/rtl/adagp_sim.v`` and writes :data:`LOG`, one event a line:

==========  ======================================================================================
``B``       a run begins
``C word``  a command has gone into its queue or, if it has none, is over: all 512 bits, hexadecimal
``E c u``   the error of the run: its code and unit, decimal
``F``       the run has ended
``S``       it has ended because of CONTROL.STOP
``R``       a reset
``W n``     number ``n`` of :func:`waits` has come true for the first time
==========  ======================================================================================
"""

import re
from dataclasses import dataclass

from hw.config import AdaGPConfig
from hw.isa.encoding import Opcode, control_opcodes, queue_opcodes
from hw.registers.map import register_map

__all__ = ["LOG", "Wait", "monitor_verilog", "waits"]

#: Name of the file in the working directory of a simulation.
LOG = "monitor.log"


@dataclass(frozen=True, kw_only=True)
class Wait:
    """An opcode of a core that something holds up.

    Members
    -------
    cause : "semaphore", "engine", "queue" (its queue is full), "drain" (HALT and BATCH wait for
        all queues), or the event of a counter of waiting that counts while a command of the opcode
        is queued or in flight
    """

    core: int
    opcode: Opcode
    cause: str


#: Of the counters those that count cycles in which something waits.
_WAITING = re.compile(r"(?:^|_)(?:stall|wait)(?:_|$)")


def _events(config):
    """Events of waiting: (event, core whose unit waits or None for the bus)."""
    for event in register_map(config).events:
        if _WAITING.search(event):
            owner = re.match(r"core(\d)_", event)
            yield event, int(owner[1]) if owner else None


def waits(config: AdaGPConfig) -> tuple[Wait, ...]:
    """All that can be thought of, in the order of the monitor's numbers; the same for everybody
    who knows the configuration."""
    found = []
    for opcode in control_opcodes(config):
        if opcode is Opcode.REPEAT:
            continue  # it waits for nothing
        found.append(Wait(core=0, opcode=opcode, cause="drain"))
        if opcode is Opcode.BATCH:
            found.append(Wait(core=0, opcode=opcode, cause="batch_wait"))
    for core in config.cores:
        for opcode in queue_opcodes(core):
            causes = ["semaphore", "engine", "queue"]
            causes += [
                event
                for event, owner in _events(config)
                if owner in (core.index, None) and event != "batch_wait"
            ]
            found += [Wait(core=core.index, opcode=opcode, cause=cause) for cause in causes]
    return tuple(found)


def monitor_verilog(config: AdaGPConfig, text: str) -> str:
    """The monitor of an accelerator whose Verilog is ``text``.

    Raises
    ------
    ValueError
        naming a signal that the Verilog does not have.
    """
    names = _Names(text, f"adagp_{config.variant}")
    conditions = []
    for wait in waits(config):
        conditions.append(_condition(config, names, wait))
    fetch, sequencer = ("fetch",), ("sequencer",)
    lines = [
        "module adagp_monitor(input clk, input rst);",
        "  integer file;",
        f'  initial file = $fopen("{LOG}", "w");',
        "  reg [511:0] command;",
        "  reg held = 0;",
        "  reg was_reset = 0;",
        f"  reg [{len(conditions) - 1}:0] seen = 0;",
        f"  wire [{len(conditions) - 1}:0] now;",
        *(f"  assign now[{n}] = {condition};" for n, condition in enumerate(conditions)),
        "  integer n;",
        "  always @(posedge clk) begin",
        "    was_reset <= rst;",
        '    if (rst && !was_reset) $fwrite(file, "R\\n");',
        "    if (rst) held <= 0;",
        "    else begin",
        f'      if ({names.path(sequencer, "begin")}) begin $fwrite(file, "B\\n"); held <= 0; end',
        f"      if ({names.path(fetch, 'command__valid')} && !held) begin",
        f"        command <= {names.path(fetch, 'command__payload')};",
        "        held <= 1;",
        "      end",
        f"      if ({names.path(sequencer, 'dispatched')}) begin",
        '        $fwrite(file, "C %h\\n", command);',
        "        held <= 0;",
        "      end",
        f"      if ({names.path(sequencer, 'error__valid')})",
        f'        $fwrite(file, "E %0d %0d\\n", {names.path(sequencer, "error__code")}, '
        f"{names.path(sequencer, 'error__unit')});",
        f"      if ({names.path(sequencer, 'finish')}) begin",
        f'        $fwrite(file, "%s\\n", {names.path(sequencer, "stopped")} ? "S" : "F");',
        "        $fflush(file);",
        "      end",
        "      if (|(now & ~seen)) begin",
        f"        for (n = 0; n < {len(conditions)}; n = n + 1)",
        '          if (now[n] && !seen[n]) $fwrite(file, "W %0d\\n", n);',
        "        seen <= seen | now;",
        "      end",
        "    end",
        "  end",
        "endmodule",
        "bind adagp_sim adagp_monitor monitor(.clk(clk), .rst(rst));",
    ]
    return "\n".join(lines) + "\n"


def _condition(config, names, wait):
    if wait.opcode in control_opcodes(config):
        drained = f"(&{names.path(('sequencer',), 'empty')})"
        if wait.cause == "batch_wait":
            return names.path(("registers",), "events__batch_wait")
        return f"held && command[7:0] == {wait.opcode.value} && !{drained}"
    core = f"core{wait.core}"
    queue = (core, f"{wait.opcode.name.lower()}_queue")
    handshake = {"semaphore": "take", "engine": "command", "queue": "push"}
    if wait.cause in handshake:
        port = handshake[wait.cause]
        return f"{names.path(queue, f'{port}__valid')} && !{names.path(queue, f'{port}__ready')}"
    event = names.path(("registers",), f"events__{wait.cause}")
    return f"{event} && !{names.path(queue, 'empty')}"


class _Names:
    """Finds the signals of instances: their names may carry a number."""

    def __init__(self, text, top):
        self.top = top
        self.ports = {}
        for match in re.finditer(r"^module (?:\\(\S+) |([\w$]+)) ?\((.*?)\);", text, re.M | re.S):
            ports = {}
            for port in match[3].replace("\n", " ").split(","):
                port = port.strip()
                ports.setdefault(re.sub(r"\$\d+$", "", port.lstrip("\\")), port)
            self.ports[re.sub(r"\$\d+", "", match[1] or match[2])] = ports

    def path(self, instance, port):
        module = f"{self.top}.{'.'.join(instance)}"
        if instance[0].startswith("core"):
            module = f"adagp_{'.'.join(instance)}"
        ports = self.ports.get(module, {})
        if port not in ports:
            raise ValueError(f"the Verilog has no port {port} of module {module}")
        name = ports[port]
        return ".".join(["accelerator", *instance, name + (" " if name[0] == "\\" else "")])
