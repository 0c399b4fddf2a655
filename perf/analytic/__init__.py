"""Cycles of whole networks by formulas, on three data flows: the paper's way of counting.

Nothing here knows our hardware's queues, buffers or memory. For cycles of compiled programs see
``python -m compiler --network``.
"""
