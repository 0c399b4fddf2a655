"""Compiled loops over the words of a command: what golden's NumPy functions compute, but faster.

``numbers`` is the arithmetic of single numbers; the other modules hold a loop for each kind of
command. They share nothing with :mod:`golden` but names and constants, and the tests compare both
bit for bit. Importing a module with a kernel imports numba; results of compilation are kept in the
directory of build products.
"""
