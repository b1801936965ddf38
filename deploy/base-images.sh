#!/usr/bin/env bash
# Build the stack's base images from Debian packages, for machines with a Debian mirror but no image registry.
# Usage: deploy/base-images.sh [--force]    Without --force, existing images are kept.
# The images get the names that docker-compose.yml and the Dockerfiles use. Grafana has no Debian package; see docs/docker.md.
# DEBIAN_MIRROR: URL of the mirror (default: the mirror in this machine's apt sources).
# CA_BUNDLE: file with the certificates that the images trust (default: this machine's certificates).
# Exit codes: 0 success, 1 failure, 2 usage error, 3 a dependency is missing.
set -Eeuo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

#: Release of Debian, and the later release that has Valkey 8.
readonly SUITE=bookworm VALKEY_SUITE=trixie
MIRROR=$(deploy/debian-mirror.sh)
readonly MIRROR
readonly BUNDLE=${CA_BUNDLE:-/etc/ssl/certs/ca-certificates.crt}
readonly INSIDE=/etc/ssl/certs/ca-certificates.crt
readonly SERVICES=(nginx-light prometheus prometheus-redis-exporter prometheus-nginx-exporter)

say() { printf '%s\n' "$*" >&2; }

fail() { # fail CODE MESSAGE...
  say "error: ${*:2}"
  exit "$1"
}

names() { # names NAME...: print the tagged images with these names that the Compose file and the Dockerfiles use
  local name
  for name in "$@"; do
    sed -nE "s#^( *image: |ARG [A-Z]+_IMAGE=)($name:[A-Za-z0-9._-]+)\$#\2#p" docker-compose.yml ./*/Dockerfile
  done | sort -u
}

check_tools() {
  ((EUID == 0)) || fail 3 "debootstrap and chroot need root: sudo $0"
  command -v debootstrap >/dev/null || fail 3 "debootstrap is not installed: apt-get install debootstrap"
  docker info >/dev/null 2>&1 || fail 3 "the Docker engine does not answer: start it, then run the same command again."
}

all_there() {
  local image
  for image in "$@"; do
    docker image inspect "$image" >/dev/null 2>&1 || return 1
  done
}

install_into() { # install_into ROOT PACKAGE...
  local root=$1
  shift
  printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d" # do not start services
  chmod +x "$root/usr/sbin/policy-rc.d"
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  chroot "$root" env DEBIAN_FRONTEND=noninteractive LC_ALL=C apt-get install -y -qq --no-install-recommends "$@"
  chroot "$root" apt-get clean
  rm -rf "$root/usr/sbin/policy-rc.d" "$root"/usr/share/{doc,man,locale} "$root/var/cache/apt"/*.bin
}

make_base() { # make_base ROOT SUITE
  debootstrap --variant=minbase --include=ca-certificates "$2" "$1" "$MIRROR"
  cat "$BUNDLE" >"$1$INSIDE"
  printf 'deb %s %s main\n' "$MIRROR" "$2" >"$1/etc/apt/sources.list"
}

import_as() { # import_as ROOT SUITE IMAGE...: import one image under several names
  local root=$1 suite=$2 first=$3 image
  tar -C "$root" --numeric-owner -c . | docker import \
    -c "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin PIP_CERT=$INSIDE SSL_CERT_FILE=$INSIDE" \
    -c "LABEL org.opencontainers.image.title=debian-packages org.opencontainers.image.base.name=debian:$suite" \
    - "$first" >/dev/null
  for image in "${@:3}"; do
    docker tag "$first" "$image"
  done
  printf '%s\n' "${@:3}"
}

make_python() { # make_python WORK IMAGE...
  cp -a "$1/base" "$1/python"
  install_into "$1/python" python3 python3-venv
  import_as "$1/python" "$SUITE" "${@:2}"
}

make_valkey() { # make_valkey WORK IMAGE...
  local root=$1/valkey
  make_base "$root" "$VALKEY_SUITE"
  install_into "$root" valkey-server
  install -d -m 0755 -o 999 -g 999 "$root/data"
  import_as "$root" "$VALKEY_SUITE" "${@:2}"
}

make_services() { # make_services WORK IMAGE...
  local root=$1/services
  cp -a "$1/base" "$root"
  install_into "$root" "${SERVICES[@]}"
  # Provide programs and data at the paths that the upstream images use.
  ln -s /usr/bin/prometheus-redis-exporter "$root/redis_exporter"
  ln -s /usr/bin/prometheus-nginx-exporter "$root/usr/bin/nginx-prometheus-exporter"
  install -d -m 0755 -o 65534 -g 65534 "$root/prometheus"
  import_as "$root" "$SUITE" "${@:2}"
}

main() {
  [[ $# -eq 0 || ($# -eq 1 && $1 == --force) ]] || fail 2 "usage: deploy/base-images.sh [--force]"
  local python valkey services
  mapfile -t python < <(names python)
  mapfile -t valkey < <(names valkey/valkey)
  mapfile -t services < <(names nginx prom/prometheus oliver006/redis_exporter nginx/nginx-prometheus-exporter)
  if [[ ${1:-} != --force ]] && all_there "${python[@]}" "${valkey[@]}" "${services[@]}"; then
    say "All base images exist; use --force to rebuild them."
    return
  fi
  check_tools
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  say "Installing Debian into folders (about two minutes; log until the command exits: $work/log) ..."
  {
    make_base "$work/base" "$SUITE"
    make_python "$work" "${python[@]}"
    make_valkey "$work" "${valkey[@]}"
    make_services "$work" "${services[@]}"
  } >"$work/log" 2>&1 || {
    tail -n 15 "$work/log" >&2
    fail 1 "see the lines above. The build needs the Debian mirror $MIRROR; set DEBIAN_MIRROR to use another."
  }
  say "Built:" "${python[@]}" "${valkey[@]}" "${services[@]}"
}

main "$@"
