"""Small queues in state records: element 0 counts, the others follow in order, the oldest first.

An element that is not in use is 0, so that equal queues are equal arrays.
"""

from .compilation import inline

__all__ = ["pop", "push"]


@inline
def push(queue, value):
    """Behind the youngest."""
    queue[0] += 1
    queue[queue[0]] = value


@inline
def pop(queue):
    """Drops the oldest."""
    last = queue[0]
    for index in range(1, last):
        queue[index] = queue[index + 1]
    queue[last] = 0
    queue[0] = last - 1
