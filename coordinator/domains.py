"""The domains of the API: each folder of the coordinator, with its routes.py. In any order: no route depends on it."""

from __future__ import annotations

import importlib
import pkgutil

from fastapi import APIRouter

import coordinator


def names() -> list[str]:
    """Return the names of the folders."""
    return [entry.name for entry in pkgutil.iter_modules(coordinator.__path__) if entry.ispkg]


def routers() -> list[APIRouter]:
    """Return `routes` of every folder's routes.py."""
    return [importlib.import_module(f"coordinator.{name}.routes").routes for name in names()]
