"""The order of recorded commands: who waits for whom, loops, and semaphores."""
