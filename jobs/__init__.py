"""Parts that every service shares: jobs, kinds, the store, workers. Knows no service."""

from pathlib import Path
from pkgutil import extend_path

#: A folder `jobs/kinds/<kind>` elsewhere on PYTHONPATH adds a kind; both levels need an `__init__.py`.
__path__ = extend_path(__path__, __name__)

#: The version of everything: of packages, of images, of what answers. The only place that says it.
VERSION = Path(__file__).with_name("VERSION").read_text().strip()
