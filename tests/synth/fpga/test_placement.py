"""Places of cells, in the form in which nextpnr writes them."""

from synth.fpga.placement import read_placement

TEXT = """{
  "modules": {
    "top": {
      "cells": {
        "system.core0.vector.x_LUT4": {
          "hide_name": 0,
          "type": "TRELLIS_COMB",
          "parameters": {
            "INITVAL": "0000"
          },
          "attributes": {
            "src": "there",
            "NEXTPNR_BEL": "X12/Y7/SLICEB.LUT0",
            "BEL_STRENGTH": "1"
          },
          "port_directions": {
            "A": "input"
          }
        },
        "nowhere": {
          "hide_name": 0,
          "type": "VCC",
          "attributes": {
          }
        },
        "pad": {
          "hide_name": 0,
          "type": "TRELLIS_IO",
          "attributes": {
            "NEXTPNR_BEL": "X0/Y95/PIOA"
          }
        }
      },
      "netnames": {
        "a": {
          "hide_name": 0,
          "attributes": {
            "ROUTING": "X1/Y2/F0"
          }
        }
      }
    }
  }
}
"""


def test_read(tmp_path):
    path = tmp_path / "placed.json"
    path.write_text(TEXT)
    assert list(read_placement(path)) == [
        ("system.core0.vector.x_LUT4", "TRELLIS_COMB", 12, 7),
        ("pad", "TRELLIS_IO", 0, 95),
    ]
