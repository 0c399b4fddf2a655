"""Numbers of the schedule of batches, as the registers and the sequencer use them."""

import enum

from amaranth.lib import data

__all__ = ["EPOCH_BATCH_WIDTH", "EPOCH_WIDTH", "PhaseCode", "STAGES", "STAGE_LAYOUT"]


#: Stages behind warm-up that the registers describe.
STAGES = 4


#: Bits of an epoch's number, and of a batch's within its epoch.
EPOCH_WIDTH, EPOCH_BATCH_WIDTH = 16, 32


#: A stage: rounds of ``gp`` batches of Phase GP and then ``bp`` of Phase BP, for ``epochs`` epochs.
STAGE_LAYOUT = data.StructLayout({"gp": 8, "bp": 8, "epochs": EPOCH_WIDTH})


class PhaseCode(enum.IntEnum):
    """What a batch does (sections 3.3 to 3.5 of the paper); warm-up does the same as Phase BP."""

    WARM_UP = 0
    BP = 1
    GP = 2
