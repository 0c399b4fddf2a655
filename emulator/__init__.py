"""The machine in Python: executes command streams without the hardware.

``machine`` executes a program in order, bit for bit; ``interpreter`` in any order that queues and
semaphores allow, and finds races and deadlocks.
"""
