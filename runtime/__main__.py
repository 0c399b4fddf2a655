"""``python -m runtime``: train a module on the accelerator, and run it."""

from cli.interrupt import end_on_signals

if __name__ == "__main__":
    end_on_signals("runtime")  # before imports that take seconds

import sys

from .command import main

if __name__ == "__main__":
    sys.exit(main())
