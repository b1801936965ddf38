#!/usr/bin/env bash
# Print the URL of a Debian mirror: DEBIAN_MIRROR, or the first one in this machine's apt sources.
# Usage: deploy/debian-mirror.sh    Exit codes: 0 success, 3 no mirror is known.
set -euo pipefail

from_apt() { # print mirrors of Debian's main archive; security and update archives contain no base system
  command -v apt-get >/dev/null || return 0
  # shellcheck disable=SC2016 # variables of apt, not of this shell
  apt-get indextargets --format '$(ORIGIN) $(LABEL) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
    awk '$1 == "Debian" && $2 == "Debian" && $3 == "main" && !found++ { print $4 }'
}

mirror=${DEBIAN_MIRROR:-$(from_apt)}
if [[ -z "$mirror" ]]; then
  printf 'error: no Debian mirror is known: set DEBIAN_MIRROR to the URL of a mirror, or run apt-get update first.\n' >&2
  exit 3
fi
printf '%s\n' "${mirror%/}"
