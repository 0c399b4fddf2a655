"""From jobs to commands: scratchpad, dependencies, semaphores, encoded programs."""
