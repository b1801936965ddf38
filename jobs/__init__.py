"""What every service shares: jobs, kinds, leases. Knows no service."""

from pkgutil import extend_path

#: A folder `jobs/kinds/<kind>` elsewhere on PYTHONPATH adds a kind; both levels need an `__init__.py`.
__path__ = extend_path(__path__, __name__)
