"""The domains of the API: each folder of the coordinator, with its routes.py, and more modules named *_routes.py.

In any order: no route depends on it.
"""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

from fastapi import APIRouter

import coordinator


def names() -> list[str]:
    """Return the names of the folders. One without routes, such as rpc, is no domain."""
    top = Path(coordinator.__path__[0])
    folders = (entry.name for entry in pkgutil.iter_modules([str(top)]) if entry.ispkg)
    return [name for name in folders if (top / name / "routes.py").is_file()]


def routers() -> list[APIRouter]:
    """Return the routers of every module of routes."""
    modules = (importlib.import_module(f"coordinator.{name}.{module}") for name in names() for module in _of(name))
    return [router for module in modules for router in vars(module).values() if isinstance(router, APIRouter)]


def _of(domain: str) -> list[str]:
    folder = importlib.import_module(f"coordinator.{domain}").__path__
    return [entry.name for entry in pkgutil.iter_modules(folder) if entry.name.endswith("routes")]
