"""Static timing, flattening and buffer trees on netlists small enough for pencil and paper.

Covers: synth/asic/netlist/fanout_repair.py, synth/asic/netlist/flat_netlist.py,
synth/asic/netlist/levelize.py, synth/asic/timing_report.py.
"""

import numpy as np
import pytest

from synth.asic.netlist.fanout_repair import buffer_cell, repair_fanout
from synth.asic.netlist.flat_netlist import ONE, ZERO, flatten
from synth.asic.netlist.static_timing import MemoryTiming, TimingGraph
from synth.asic.timing_report import timing_report
from synth.common.errors import ToolError
from tests.synth.conftest import CLK, cell, port


def module(ports, cells):
    return {"ports": ports, "cells": cells, "netnames": {}}


#: Two registers, an inverter and a NAND between them and a third register.
PATH = {
    "top": module(
        {"clk": port("input", CLK), "a": port("input", 3), "q": port("output", 8)},
        {
            "first": cell("DFF", CK=CLK, D=3, Q=4),
            "second": cell("DFF", CK=CLK, D=3, Q=5),
            "inverter": cell("INV", A=4, Y=6),
            "gate": cell("NAND2", A=6, B=5, Y=7),
            "last": cell("DFF", CK=CLK, D=7, Q=8),
        },
    )
}


def test_by_hand(tiny):
    """All in ps: first.Q, inverter.Y, gate.Y rising and falling; loads 1, 2 or 1.5, and 2 fF."""
    netlist = flatten(PATH, "top", tiny)
    graph = TimingGraph(netlist)
    rise_q, fall_q = 50 + 1, 40 + 1
    rise_y, fall_y = fall_q + 10 + 0.1 * (8 + 1) + 2, rise_q + 8 + 0.1 * (10 + 1) + 1.5
    through_a = fall_y + 20 + 0.1 * (4 + 2 * 1.5) + 2
    through_b = 42 + 24 + 0.1 * (8 + 2) + 2
    assert (rise_y, fall_y, through_a, through_b) == pytest.approx((53.9, 61.6, 84.3, 69))
    arrival = graph.arrivals() * 1000
    gate = netlist.groups["NAND2"].pin("Y")[0]
    assert arrival[netlist.groups["INV"].pin("Y")[0]] == pytest.approx([53.9, 61.6])
    assert arrival[gate] == pytest.approx([84.3, 74.4])
    assert graph.slew[gate] * 1000 == pytest.approx([11.0, 11.2])
    report = timing_report(graph, clock_ns=1.0)
    # Rising: 84.3 and setup 10 + 0.2 * 11.0; falling: 74.4 + 12 + 0.2 * 11.2 = 88.64.
    assert report["period_ns"] == pytest.approx(0.0965)
    assert report["fmax_mhz"] == pytest.approx(1000 / 0.0965, abs=0.01)
    path = report["critical_path"]
    assert [step["cell"] for step in path["cells"]] == ["first", "inverter", "gate"]
    assert [step["ns"] for step in path["cells"]] == pytest.approx([0.051, 0.0106, 0.0227])
    assert (path["from"], path["to"], path["gates"]) == ("first", "last", 2)
    assert path["setup_ns"] == pytest.approx(0.0122)
    # The output of the last register is not loaded; from the input: setup only.
    assert report["register_to_output_ns"] == pytest.approx(0.050)
    assert report["input_to_register_ns"] == pytest.approx(0.012)
    assert sum(report["slack"]["ends"]) == 1


def test_wires_slow_down(tiny):
    netlist = flatten(PATH, "top", tiny)
    graph = TimingGraph(netlist, wire_load=tiny.wire_load())
    bare = TimingGraph(netlist)
    nets = netlist.groups["INV"].pin("A")
    assert graph.load[nets, 0] == bare.load[nets, 0] + 1  # one load: length 2, 0.5 fF each
    assert graph.wire[netlist.inputs["clk"]] == 0  # ideal
    # first.Q +1, inverter falls +1 (slew +1, +1), gate rises +1 (slew +2), setup (slew +2)
    by_hand = 96.5 + 1 + (1 + 0.1) + (1 + 0.1 * 2) + 0.2 * (0.1 * 1 + 2)
    assert timing_report(graph, clock_ns=1.0)["period_ns"] * 1000 == pytest.approx(by_hand)


def test_xor_takes_the_worst_edge(tiny):
    modules = {
        "top": module(
            {"clk": port("input", CLK), "a": port("input", 3)},
            {
                "first": cell("DFF", CK=CLK, D=3, Q=4),
                "gate": cell("XOR2", A=4, B="1", Y=5),
                "last": cell("DFF", CK=CLK, D=5),
            },
        )
    }
    netlist = flatten(modules, "top", tiny)
    arrival = TimingGraph(netlist).arrivals() * 1000
    # Load of first.Q 3 fF: rise 53 (slew 13); both output edges come from it.
    assert arrival[netlist.groups["XOR2"].pin("Y")[0]] == pytest.approx([53 + 30 + 1.3 + 2] * 2)


def test_memories_are_parameters(tiny):
    modules = {
        "top": module(
            {"clk": port("input", CLK)},
            {
                "bank": cell("ram", clk=CLK, address=6, data=4),
                "inverter": cell("INV", A=4, Y=5),
                "register": cell("DFF", CK=CLK, D=5, Q=6),
            },
        ),
        "ram": module(
            {"clk": port("input", 2), "address": port("input", 3), "data": port("output", 4)}, {}
        ),
    }
    netlist = flatten(modules, "top", tiny, {"ram"})
    timing = MemoryTiming(access_ns=0.5, setup_ns=0.2, slew_ns=0.1, input_ff=7.0)
    graph = TimingGraph(netlist, memory={"ram": timing})
    report = timing_report(graph, clock_ns=1.0)
    # Access, inverter with slew 100 ps and 2 fF, setup of a slew of 5 + 2 * 2 ps.
    rise = 500 + 10 + 0.1 * 100 + 2 + 10 + 0.2 * 9
    fall = 500 + 8 + 0.1 * 100 + 2 + 12 + 0.2 * 8
    assert report["period_ns"] * 1000 == pytest.approx(max(rise, fall))
    assert report["critical_path"]["from"] == "bank"
    assert graph.load[netlist.macros[0].inputs["address"][0], 0] == 7
    to_memory = next(path for path in report["paths"] if path["to_kind"] == "memory")
    assert to_memory["ns"] * 1000 == pytest.approx(50 + 7 + 200)
    assert report["register_to_register_ns"] is None


def test_loop_is_refused(tiny):
    modules = {
        "top": module(
            {"clk": port("input", CLK)},
            {
                "one": cell("INV", A=3, Y=4),
                "two": cell("INV", A=4, Y=3),
                "register": cell("DFF", CK=CLK, D=4, Q=5),
            },
        )
    }
    with pytest.raises(ToolError, match="Gates form a loop through one"):
        TimingGraph(flatten(modules, "top", tiny))


def test_hierarchy_is_joined(tiny):
    """Feed-through and constant outputs of a module join nets of its parent."""
    modules = {
        "top": module(
            {"clk": port("input", CLK), "a": port("input", 3), "b": port("output", 4, 5, 6)},
            {
                "x": cell("inner", i=[3], o=[4, 5, 6]),
                "y": cell("inner", i=[5], o=[7, 8, 9]),
            },
        ),
        "inner": module(
            {"i": port("input", 2), "o": port("output", 3, 2, "1")},
            {"inverter": cell("INV", A=2, Y=3), "other.deep": cell("INV", A=3)},
        ),
    }
    netlist = flatten(modules, "top", tiny)
    inverter = netlist.groups["INV"]
    a, b = netlist.inputs["a"][0], netlist.outputs["b"]
    assert b[1] == a and b[2] == ONE and b[0] not in (a, ZERO, ONE)
    assert [block.name for block in netlist.blocks] == ["", "x", "y"]
    instances = [netlist.instance(inverter, index) for index in range(4)]
    assert instances == ["x.inverter", "x.other.deep", "y.inverter", "y.other.deep"]
    assert list(inverter.pin("A")[[0, 2]]) == [a, a]
    assert len(set(inverter.pin("Y"))) == 4


@pytest.mark.parametrize("sinks", [41, 100, 300, 5000])
def test_fanout_is_repaired(tiny, sinks):
    cells = {f"sink{index}": cell("INV", A=3, Y=100 + index) for index in range(sinks)}
    cells["driver"] = cell("DFF", CK=CLK, D=4, Q=3)
    modules = {"top": module({"clk": port("input", CLK)}, cells)}
    before = flatten(modules, "top", tiny)
    graph = TimingGraph(before)
    after, count = repair_fanout(before, graph.load.max(axis=1), None)
    assert buffer_cell(tiny).name == "BUF4"
    buffers = after.groups["BUF4"]
    assert count == len(buffers.block) > 0
    load = TimingGraph(after).load.max(axis=1)
    driver = after.groups["DFF"].pin("Q")[0]
    assert load[driver] <= 20 and load[buffers.pin("Y")].max() <= 120
    # Every sink is still there, fed by the driver through buffers.
    source = dict(zip(buffers.pin("Y"), buffers.pin("A")))
    for net in after.groups["INV"].pin("A"):
        steps = 0
        while net != driver:
            net, steps = source[net], steps + 1
        assert steps >= 1
    assert load[after.groups["INV"].pin("A")].sum() > 0
    assert "fanout_buffer" in after.instance(buffers, 0)


def test_small_fanout_is_left_alone(tiny):
    netlist = flatten(PATH, "top", tiny)
    load = TimingGraph(netlist).load.max(axis=1)
    assert repair_fanout(netlist, load, None) == (netlist, 0)


def test_many_random_netlists_against_a_plain_walk(tiny, rng):
    """The arrays give what a walk over the gates gives, gate by gate."""
    for _trial in range(5):
        cells, nets = {}, []
        for index in range(6):
            cells[f"r{index}"] = cell("DFF", CK=CLK, D="0", Q=10 + index)
            nets.append(10 + index)
        for index in range(60):
            kind = ["INV", "BUF", "NAND2", "NOR2", "XOR2"][rng.integers(5)]
            wires = {pin: int(rng.choice(nets)) for pin in tiny.cells[kind].inputs}
            cells[f"g{index}"] = cell(kind, **wires, Y=100 + index)
            nets.append(100 + index)
        netlist = flatten({"top": module({"clk": port("input", CLK)}, cells)}, "top", tiny)
        graph = TimingGraph(netlist)
        arrival = np.full((netlist.nets, 2), -np.inf)
        slew = np.zeros((netlist.nets, 2))
        gates = {}
        for group in netlist.groups.values():
            for index in range(len(group.block)):
                gates[netlist.instance(group, index)] = group, index
        for name in cells:
            group, index = gates[name]
            pins = dict(zip(group.pins, group.nets[index]))
            for output in group.cell.outputs:
                net = pins[output]
                for arc in group.cell.pins[output].arcs:
                    for edge, word in enumerate(("rise", "fall")):
                        delay, transition = (
                            arc.tables[f"cell_{word}"],
                            arc.tables[f"{word}_transition"],
                        )
                        sources = {
                            "positive_unate": (edge,),
                            "negative_unate": (1 - edge,),
                            "non_unate": (0, 1),
                        }[arc.sense]
                        for source in sources:
                            begin, at = (
                                (0.0, 0.0)
                                if name[0] == "r"
                                else (arrival[pins[arc.related], source],)
                                + (slew[pins[arc.related], source],)
                            )
                            load = graph.load[net, edge]
                            arrival[net, edge] = max(arrival[net, edge], begin + delay(at, load))
                            slew[net, edge] = max(slew[net, edge], transition(at, load))
        np.testing.assert_allclose(graph.arrivals(), arrival, rtol=1e-12)
        np.testing.assert_allclose(graph.slew, slew, rtol=1e-12)
