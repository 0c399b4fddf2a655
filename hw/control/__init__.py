"""Command fetch, sequencer, queues, semaphores, batches, and a core that joins its engines."""
