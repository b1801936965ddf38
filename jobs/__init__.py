"""Code that all servers share: jobs, kinds, the store and the worker loop. This package does not import any server."""

from pathlib import Path
from pkgutil import extend_path

#: A folder `jobs/kinds/<kind>` in another folder on PYTHONPATH adds a kind.
#: Its parent folders `jobs` and `jobs/kinds` need an `__init__.py`.
__path__ = extend_path(__path__, __name__)

#: Version of the project, its packages and its container images. No other file defines the version.
VERSION = Path(__file__).with_name("VERSION").read_text().strip()
