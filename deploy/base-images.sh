#!/usr/bin/env bash
# Makes the base images of the stack from Debian packages, for machines that reach a Debian mirror but no image registry.
# Usage: deploy/base-images.sh [--force]      Images that exist are kept without --force.
# They get the names that docker-compose.yml and the Dockerfiles use. Grafana has no Debian package: see docs/docker.md.
# Environment: DEBIAN_MIRROR (default: the one in this machine's apt sources); CA_BUNDLE, certificates that the images shall
# trust (default: this machine's).
# Exit codes: 0 done, 1 failed, 2 usage, 3 something must be installed first.
set -Eeuo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly SUITE=bookworm
MIRROR=$(deploy/debian-mirror.sh)
readonly MIRROR
readonly BUNDLE=${CA_BUNDLE:-/etc/ssl/certs/ca-certificates.crt}
readonly INSIDE=/etc/ssl/certs/ca-certificates.crt
readonly SERVICES=(redis-server nginx-light prometheus prometheus-redis-exporter prometheus-nginx-exporter)

say() { printf '%s\n' "$*" >&2; }

fail() { # fail CODE MESSAGE...
  say "error: ${*:2}"
  exit "$1"
}

names() { # names NAME...: the tagged images of these names that the files use
  local name
  for name in "$@"; do
    sed -nE "s#^( *image: |ARG [A-Z]+_IMAGE=)($name:[A-Za-z0-9._-]+)\$#\2#p" docker-compose.yml ./*/Dockerfile
  done | sort -u
}

check_tools() {
  ((EUID == 0)) || fail 3 "debootstrap and chroot need root: sudo $0"
  command -v debootstrap >/dev/null || fail 3 "debootstrap is not installed: apt-get install debootstrap"
  docker info >/dev/null 2>&1 || fail 3 "no Docker engine answers: start it, then run the same command again."
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
  printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d" # no service is started
  chmod +x "$root/usr/sbin/policy-rc.d"
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  chroot "$root" env DEBIAN_FRONTEND=noninteractive LC_ALL=C apt-get install -y -qq --no-install-recommends "$@"
  chroot "$root" apt-get clean
  rm -rf "$root/usr/sbin/policy-rc.d" "$root"/usr/share/{doc,man,locale} "$root/var/cache/apt"/*.bin
}

make_base() { # make_base ROOT
  debootstrap --variant=minbase --include=ca-certificates "$SUITE" "$1" "$MIRROR"
  cat "$BUNDLE" >"$1$INSIDE"
  printf 'deb %s %s main\n' "$MIRROR" "$SUITE" >"$1/etc/apt/sources.list"
}

import_as() { # import_as ROOT IMAGE...: one image under several names
  local root=$1 first=$2 image
  tar -C "$root" --numeric-owner -c . | docker import \
    -c "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin PIP_CERT=$INSIDE SSL_CERT_FILE=$INSIDE" \
    -c "LABEL org.opencontainers.image.title=debian-packages org.opencontainers.image.base.name=debian:$SUITE" \
    - "$first" >/dev/null
  for image in "${@:2}"; do
    docker tag "$first" "$image"
  done
  printf '%s\n' "${@:2}"
}

make_python() { # make_python WORK IMAGE...
  cp -a "$1/base" "$1/python"
  install_into "$1/python" python3 python3-venv
  import_as "$1/python" "${@:2}"
}

make_services() { # make_services WORK IMAGE...
  local root=$1/services
  cp -a "$1/base" "$root"
  install_into "$root" "${SERVICES[@]}"
  # Where the upstream images have their programs and data.
  ln -s /usr/bin/prometheus-redis-exporter "$root/redis_exporter"
  ln -s /usr/bin/prometheus-nginx-exporter "$root/usr/bin/nginx-prometheus-exporter"
  install -d -m 0755 -o 999 -g 999 "$root/data"
  install -d -m 0755 -o 65534 -g 65534 "$root/prometheus"
  import_as "$root" "${@:2}"
}

main() {
  [[ $# -eq 0 || ($# -eq 1 && $1 == --force) ]] || fail 2 "usage: deploy/base-images.sh [--force]"
  local python services
  mapfile -t python < <(names python)
  mapfile -t services < <(names redis nginx prom/prometheus oliver006/redis_exporter nginx/nginx-prometheus-exporter)
  if [[ ${1:-} != --force ]] && all_there "${python[@]}" "${services[@]}"; then
    say "All base images are there; --force makes them anew."
    return
  fi
  check_tools
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  say "Installing Debian $SUITE into a folder (about a minute; log: $work/log until the end) ..."
  {
    make_base "$work/base"
    make_python "$work" "${python[@]}"
    make_services "$work" "${services[@]}"
  } >"$work/log" 2>&1 || {
    tail -n 15 "$work/log" >&2
    fail 1 "see the lines above. It needs the Debian mirror $MIRROR; DEBIAN_MIRROR names another."
  }
  say "Made:" "${python[@]}" "${services[@]}"
}

main "$@"
