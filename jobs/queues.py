"""Every queue name. A queue is a device and a priority; workers listen by priority first, their own device first."""

from __future__ import annotations

from jobs.models import Device, Priority

#: RQ queues, for example `any.normal`.
ALL: tuple[str, ...] = tuple(f"{device}.{priority}" for priority in Priority for device in Device)


def name(device: Device, priority: Priority) -> str:
    """Return the queue of a device and a priority."""
    return f"{device}.{priority}"


def priority_of(queue: str) -> Priority:
    """Return the priority of a queue."""
    return Priority(queue.partition(".")[2])


def for_worker(device: Device) -> tuple[str, ...]:
    """Return the queues that a worker of this device listens to, best first. A runner hears its own alone."""
    mine = (device,) if device is Device.RUNNER else (device, Device.ANY)
    return tuple(name(where, priority) for priority in Priority for where in mine)


def higher(queue: str, listened: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of `listened` whose priority is above that of `queue`: work there makes a slot end."""
    order = list(Priority)
    rank = order.index(priority_of(queue))
    return tuple(other for other in listened if order.index(priority_of(other)) < rank)
