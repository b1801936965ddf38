#!/usr/bin/env bash
# Install Docker with Compose v2 from Debian packages, and start the engine.
# Continuous integration runs this script as root on Debian. If an engine is running, the script does nothing.
set -Eeuo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

readonly PLUGINS=/usr/libexec/docker/cli-plugins
readonly LOG=${ENGINE_LOG:-/tmp/dockerd.log}

say() { printf '%s\n' "$*" >&2; }

ready() { docker info >/dev/null 2>&1; }

install_packages() { # install_packages PACKAGE...
  dpkg -s "$@" >/dev/null 2>&1 && return
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >&2
}

install_compose() { # install the plugin of the next Debian release, because bookworm has only version 1
  docker compose version >/dev/null 2>&1 && return
  local work mirror
  mirror=$(deploy/debian-mirror.sh)
  work=$(mktemp -d)
  mkdir -p "$work/lists/partial" "$work/archives/partial" "$PLUGINS"
  {
    printf 'Types: deb\nURIs: %s\nSuites: trixie\nComponents: main\n' "$mirror"
    printf 'Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n'
  } >"$work/trixie.sources"
  local options=(-o "Dir::Etc::sourcelist=$work/trixie.sources" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$work/lists")
  apt-get "${options[@]}" update -qq
  (cd "$work" && apt-get "${options[@]}" download docker-compose >&2 2>/dev/null)
  dpkg -x "$work"/docker-compose_*.deb "$work/unpacked"
  install "$work/unpacked$PLUGINS/docker-compose" "$PLUGINS/docker-compose"
  rm -rf "$work"
}

favour_containers() { # increase the CPU share of containers, which otherwise count as a single process
  local old=/sys/fs/cgroup/cpu new=/sys/fs/cgroup
  if [[ -d $old ]]; then
    mkdir -p "$old/docker" && echo 8192 >"$old/docker/cpu.shares"
  else
    mkdir -p "$new/docker" && echo 1000 >"$new/docker/cpu.weight"
  fi 2>/dev/null || say "note: containers have the same CPU share as a single process"
}

start_engine() {
  ready && return
  favour_containers
  setsid dockerd >"$LOG" 2>&1 </dev/null &
  local _
  for _ in {1..100}; do
    ready && return
    sleep 0.3
  done
  tail -n 20 "$LOG" >&2
  say "error: the Docker engine did not start; see its log, $LOG"
  exit 1
}

main() {
  if ready && docker compose version >/dev/null 2>&1; then return; fi
  ((EUID == 0)) || { say "error: installing an engine needs root" && exit 3; }
  install_packages docker.io iptables debootstrap
  install_compose
  start_engine
}

main "$@"
