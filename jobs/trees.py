"""Trees of files as they travel: the parts of threads_protocol for them."""

from threads_protocol import bundles as bundles
from threads_protocol import manifest as manifest
