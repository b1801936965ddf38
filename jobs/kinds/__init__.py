"""Folders of kinds: each folder defines one kind of job, and `jobs.kinds.registry` finds the folders."""

from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)
