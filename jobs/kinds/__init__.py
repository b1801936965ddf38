"""Each folder here is one kind of job. Nothing is registered by hand: `jobs.kinds.registry` lists the folders."""

from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)
