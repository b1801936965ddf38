"""Names of the queues. Each queue is for a device and a priority, for example `any.normal`.

Workers read queues by priority, and their own device's queue first.
"""

from __future__ import annotations

from jobs.models import Device, Priority

#: Names of all queues, which are queues of the library RQ.
ALL: tuple[str, ...] = tuple(f"{device}.{priority}" for priority in Priority for device in Device)


def name(device: Device, priority: Priority) -> str:
    """Return the name of the queue for a device and a priority."""
    return f"{device}.{priority}"


def priority_of(queue: str) -> Priority:
    """Return the priority of a queue by its name."""
    return Priority(queue.partition(".")[2])


def for_worker(device: Device) -> tuple[str, ...]:
    """Return the queues that a worker reads, highest priority first. Runners read only their own queues."""
    mine = (device,) if device is Device.RUNNER else (device, Device.ANY)
    return tuple(name(where, priority) for priority in Priority for where in mine)


def with_higher_priority(queue: str, listened: tuple[str, ...]) -> tuple[str, ...]:
    """Return the queues in `listened` that have a higher priority than `queue`."""
    order = list(Priority)
    rank = order.index(priority_of(queue))
    return tuple(other for other in listened if order.index(priority_of(other)) < rank)
