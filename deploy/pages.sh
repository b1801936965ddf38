#!/usr/bin/env bash
# Builds the pages into web/dist when they are missing or older than their sources; a second run ends at once.
# Usage: deploy/pages.sh [build|test|lint|format]
# test: their own tests, types, and sizes of what was built; lint: their sources' style; format: mends it.
# Node.js 20.19 or later is taken from PATH, else installed into .venv.
# Exit codes: 0 web/dist is there and new, 1 it could not be built or a check failed, 2 usage, 3 there is neither Node.js nor
# .venv.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly LOG=.venv/pages.log STAMP=web/node_modules/.pages-stamp

say() { printf '%s\n' "$*" >&2; }

fail() {
  local code=$1
  shift
  say "error: $*"
  exit "$code"
}

fingerprint() { # changes with every source of the pages and with this script
  find web deploy/pages.sh -type f -not -path '*/node_modules/*' -not -path 'web/dist/*' -not -name '*.md' -print0 |
    LC_ALL=C sort -z | xargs -0 cksum | cksum
}

built() { [[ -f web/dist/index.html && "$(cat "$STAMP" 2>/dev/null)" == "$(fingerprint)" ]]; }

new_enough() { # new_enough NODE
  "$1" -e 'const [a, b] = process.versions.node.split("."); process.exit(a > 20 || (a == 20 && b >= 19) ? 0 : 1)' \
    >/dev/null 2>&1
}

find_node() { # afterwards node and npm on PATH are new enough
  if command -v npm >/dev/null && new_enough node; then return; fi
  [[ -x .venv/bin/python ]] || fail 3 "there is neither Node.js 20.19 or later nor .venv; run make setup first."
  export PATH="$PWD/.venv/bin:$PATH"
  new_enough .venv/bin/node && return
  say "Installing Node.js into .venv (once) ..."
  .venv/bin/python -m pip install --disable-pip-version-check --require-hashes -r requirements/web.txt >"$LOG" 2>&1 &&
    new_enough .venv/bin/node && return
  tell_log
  fail 1 "Node.js could not be installed from requirements/web.txt (all lines: $LOG); it needs a way to a package index," \
    "or Node.js 20.19 or later on PATH."
}

tell_log() { tail -n 15 "$LOG" >&2; }

install() {
  mkdir -p .venv # for the log
  if [[ ! -d web/node_modules || "$(cksum <web/package-lock.json)" != "$(cat "$STAMP.lock" 2>/dev/null)" ]]; then
    say "Installing what the pages are built with (web/package-lock.json) ..."
    if ! npm --prefix web ci --no-audit --no-fund >"$LOG" 2>&1; then
      tell_log
      fail 1 "npm could not install web/package-lock.json (all lines: $LOG)." \
        "It needs a way to a registry, or NPM_CONFIG_REGISTRY set to one; then run the same command again."
    fi
    cksum <web/package-lock.json >"$STAMP.lock"
  fi
}

build() {
  local sources
  sources=$(fingerprint) # before the build: what changes meanwhile is built the next time
  find_node
  install
  say "Building the pages ..."
  if ! npm --prefix web run build >"$LOG" 2>&1; then
    tell_log
    fail 1 "the pages could not be built (all lines: $LOG)."
  fi
  [[ -f web/dist/index.html ]] || fail 1 "npm run build left no web/dist/index.html (all lines: $LOG)."
  printf '%s\n' "$sources" >"$STAMP"
}

run() { # run SCRIPT...: of web/package.json
  find_node
  install
  local script
  for script in "$@"; do
    npm --prefix web run --silent "$script"
  done
}

main() {
  [[ $# -le 1 && "${1:-build}" =~ ^(build|test|lint|format)$ ]] || fail 2 "usage: deploy/pages.sh [build|test|lint|format]"
  [[ -f web/package.json ]] || return 0
  case "${1:-build}" in
    build) built || build ;;
    test)
      built || build
      run check test size
      ;;
    *) run "$1" ;;
  esac
}

main "$@"
