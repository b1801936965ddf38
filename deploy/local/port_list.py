"""List of the ports that the local cluster uses, in a file that `cluster status` prints."""

from __future__ import annotations

from jobs.settings import LOCAL_FOLDER

#: Lines of the form `name: port`.
FILE = LOCAL_FOLDER / "ports"


def write(ports: dict[str, int]) -> None:
    """Replace the list. Ports with the number 0 are not in use."""
    FILE.write_text("".join(f"{name}: {port}\n" for name, port in ports.items() if port))


def add(name: str, port: int) -> None:
    """Add a port to the list, or replace the port with this name."""
    write({**read(), name: port})


def read() -> dict[str, int]:
    """Return the ports by name; empty if no cluster is running."""
    try:
        lines = FILE.read_text().splitlines()
    except FileNotFoundError:
        return {}
    return {name: int(port) for name, _, port in (line.partition(": ") for line in lines)}


def describe() -> str:
    """Return the ports as one line."""
    return ", ".join(f"{name} {port}" for name, port in read().items())
