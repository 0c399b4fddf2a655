"""Registers of the machine as records: what decides over its cycles, and no data.

Names begin with the block: ``q`` command queues, ``l`` LOAD, ``w`` WEIGHTS, ``m`` MATMUL, ``p``
POST, ``s`` STORE, ``v`` VECTOR, ``r`` and ``a`` its readers and their addresses, ``o`` LOSS; of
what is shared ``f`` and ``ring`` the fetch, ``b`` BATCH, ``t`` semaphores, ``d`` beats read, ``ar``
and ``aw`` addresses, ``m`` and ``n`` memory. Shift registers (``..._ago``, ``..._arriving``,
``..._due``) hold a cycle per bit. Arrays whose type has a depth are queues (:mod:`.fifo`).
"""

import numpy as np

from hw.bus.axi_mux import WRITE_ORDER_DEPTH
from hw.control.command_queue import IN_FLIGHT
from hw.dma.store import OUTSTANDING_WRITES, WORD_QUEUE_DEPTH
from hw.engines.post.writer import PostWriter
from hw.engines.vector.address_generator import VectorWalker
from hw.engines.vector.writer import VectorWriter
from hw.isa.encoding import QUEUE_OPCODES, SEMAPHORE_MASK_WIDTH
from hw.isa.loops import LOOP_LEVELS

from .bus import MEMORY_QUEUE

__all__ = ["CORE", "CORE_COUNTS", "PLANNER", "SHARED", "SHARED_COUNTS"]

_QUEUES = len(QUEUE_OPCODES)
#: Largest depths that a configuration may ask for: of command queues, and of reads outstanding.
_MOST_COMMANDS, _MOST_READS = 64, 64


def _queue(depth):
    return (depth + 2,)


def _record(names, arrays):
    fields = [(name, np.int64) for name in names.split()]
    return np.dtype(fields + [(name, np.int64, shape) for name, shape in arrays.items()])


_PER_QUEUE = "arriving reserved whole leaving shift waiting granted finished head address"
_READER = "active address words arriving asked base place filled present full group slot word chunk"

CORE = _record(
    """
    done q_active
    l_waiting l_next_address l_next_row l_address l_row l_row_end l_left l_top l_prime l_packing
    l_used l_level l_position l_ending l_final l_begun l_out l_out_address l_out_final l_spare
    l_spare_address l_spare_final l_unfinished l_done
    w_state w_command w_walk w_row w_block w_kw w_kh w_cb w_point w_address w_exists w_block_first
    w_block_last w_final w_held w_held_last w_held_skip w_flushing w_filling w_line w_place w_free
    w_bias_held w_bias_word w_loaded
    m_active m_command m_walk m_wo m_ho m_n m_kw m_kh m_cb m_saved_wo m_saved_ho m_saved_n m_line
    m_outside m_flushing m_initial m_held_any m_held_first m_held_last m_held_initial m_held_final
    m_ended_any m_ended_initial m_ended_final m_continues m_sums m_sums_bank m_out m_made m_valid
    m_payload m_spare m_second m_loaded m_left m_settle m_drain m_vectors_ago m_banks_ago
    m_finals_ago m_biases_ago
    p_state p_command p_walk p_pw p_ph p_group p_wo p_ho p_n p_valid p_payload p_spare p_second
    p_due p_wait p_results p_piece p_slot p_address p_origin0 p_origin1 p_origin2 p_out p_out_final
    p_out_address
    s_active s_prime s_address s_extent s_left s_runs s_row s_row_end s_rest s_top s_taken s_room
    s_arriving s_laying s_level s_front s_flush s_sent s_unfinished s_done
    v_state v_command v_walk v_i0 v_i1 v_i2 v_cb v_group v_blocked v_release v_close v_special
    v_asked v_drawing v_due v_room v_reserved v_sum_state v_sum_wait v_sum_group v_level v_pair
    v_steps_in v_steps_out v_places_in v_places_out v_places_depth v_place_used v_results_in
    v_results_out v_slot v_chunk v_part v_out v_out_final v_out_address
    o_state o_command o_phase o_closed o_quiet o_room o_flushing o_lane o_full o_address o_pieces
    o_pieces_end o_thread0 o_thread1 o_thread2 o_thread3 o_request o_asked o_operation o_end
    o_entry0 o_entry0_end o_entry1 o_entry2 o_entry3 o_there o_inside o_number o_rows_left
    o_sequence0
    o_sequence1 o_sequence2 o_sequence3 o_gradients o_sums o_last_powers o_last_gradients
    o_power_rows o_todo o_part o_arriving o_base0 o_base1 o_base2 o_at0 o_at1 o_at3 o_targets
    o_x_first o_x_lane o_t_lane o_ends
    """,
    {f"q_{name}": (_QUEUES,) for name in _PER_QUEUE.split()}
    | {
        "q_commands": (_QUEUES, _MOST_COMMANDS + 2),
        "q_addresses": (_QUEUES, _MOST_COMMANDS + 2),
        "q_signals": (_QUEUES, IN_FLIGHT + 2),
        "l_pending": _queue(_MOST_READS),
        "s_pending": _queue(OUTSTANDING_WRITES),
        "s_due": _queue(OUTSTANDING_WRITES),
        "s_offsets": _queue(OUTSTANDING_WRITES),
        "s_words": _queue(WORD_QUEUE_DEPTH),
        "p_places": _queue(PostWriter.DEPTH),
        "o_queue": _queue(16),
        "v_steps": _queue(VectorWalker.DEPTH),
        "v_places": _queue(2 * VectorWriter.DEPTH),
    }
    | {f"r_{name}": (3,) for name in _READER.split()}
    | {f"a_{name}": (3,) for name in ("valid", "address", "spare", "second")},
)

#: The way from runs to bursts, of a LOAD or a STORE.
PLANNER = _record(
    "active first extent stride runs valid begin last final cut_valid cut_from cut_last cut_first "
    "cut_final out burst",
    {},
)

SHARED = _record(
    """
    state stop quiet checked chunk hold moved r_step schedule
    f_phase f_running f_fresh f_more f_offset f_unread f_outstanding f_stale f_passed f_open
    f_whole f_half f_chunk f_word f_place f_beats f_lines ring_level ring_held block_bytes
    b_state b_check b_restarted b_target batches_done
    t_turn t_asking t_wanted t_given t_first t_queues
    ar ar_burst ar_latest d_valid d_beat d_spare d_second m_read m_beat m_place
    aw aw_burst aw_latest w_valid w_bytes w_spare w_second n_place n_used n_answer
    """,
    {
        "loop": (LOOP_LEVELS,),
        "tokens": (SEMAPHORE_MASK_WIDTH,),
        "m_bursts": _queue(MEMORY_QUEUE),
        "m_times": _queue(MEMORY_QUEUE),
        "n_due": _queue(MEMORY_QUEUE),
        "n_done": _queue(MEMORY_QUEUE),
        "n_times": _queue(MEMORY_QUEUE),
        "w_order": _queue(WRITE_ORDER_DEPTH),
    },
)

#: Counters as the hardware has them (hw/registers/counter_list.py), but for CYCLES and READ_BYTES.
SHARED_COUNTS = _record(
    "COMMANDS READ_BEATS READ_STALL WRITE_BEATS WRITE_BYTES WRITE_STALL BATCHES_GP", {}
)
CORE_COUNTS = _record(
    "VECTORS TILES STALL_WEIGHTS STALL_BUFFER STALL_HAZARD STALL_COMMAND POST_BUSY POST_STALL "
    "LOAD_BUSY STORE_BUSY VECTOR_BUSY VECTOR_STALL LOSS_BUSY",
    {},
)
