"""Find the domains of the API: the folders of coordinator/ that contain a routes.py.

A domain can define further routes in modules named *_routes.py. The order of routes does not matter.
"""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

from fastapi import APIRouter

import coordinator


def names() -> list[str]:
    """Return the names of the domains. A folder without routes.py, such as rpc, is not a domain."""
    top = Path(coordinator.__path__[0])
    folders = (entry.name for entry in pkgutil.iter_modules([str(top)]) if entry.ispkg)
    return [name for name in folders if (top / name / "routes.py").is_file()]


def routers() -> list[APIRouter]:
    """Return the routers of all domains."""
    modules = (
        importlib.import_module(f"coordinator.{name}.{module}") for name in names() for module in _route_modules(name)
    )
    return [router for module in modules for router in vars(module).values() if isinstance(router, APIRouter)]


def _route_modules(domain: str) -> list[str]:
    folder = importlib.import_module(f"coordinator.{domain}").__path__
    return [entry.name for entry in pkgutil.iter_modules(folder) if entry.name.endswith("routes")]
