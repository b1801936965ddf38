"""Names of the queues. A queue is a device and a priority. Workers read queues by priority, then their own device
first.
"""

from __future__ import annotations

from jobs.models import Device, Priority

#: Names of RQ queues, such as `any.normal`.
ALL: tuple[str, ...] = tuple(f"{device}.{priority}" for priority in Priority for device in Device)


def name(device: Device, priority: Priority) -> str:
    """Return the queue name for a device and a priority."""
    return f"{device}.{priority}"


def priority_of(queue: str) -> Priority:
    """Return the priority of a queue."""
    return Priority(queue.partition(".")[2])


def for_worker(device: Device) -> tuple[str, ...]:
    """Return the queues for workers of a device, best first. Runners read only their own queues."""
    mine = (device,) if device is Device.RUNNER else (device, Device.ANY)
    return tuple(name(where, priority) for priority in Priority for where in mine)


def with_higher_priority(queue: str, listened: tuple[str, ...]) -> tuple[str, ...]:
    """Return the queues in `listened` with a higher priority than `queue`, whose work ends a worker's slot."""
    order = list(Priority)
    rank = order.index(priority_of(queue))
    return tuple(other for other in listened if order.index(priority_of(other)) < rank)
