#!/usr/bin/env bash
# Build the web pages in web/dist if they are missing or older than their sources.
# Usage: deploy/pages.sh [build|test|lint|format]
# test runs unit tests, type checks and size checks of the build; lint checks the style of the sources; format fixes it.
# Uses Node.js 20.19 or later from PATH, or else installs it into .venv.
# Exit codes: 0 web/dist is up to date, 1 the build or a check failed, 2 usage error, 3 neither Node.js nor .venv exists.
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

fingerprint() { # print a checksum of all sources of the pages and this script, without types that are made from openapi.json
  find web deploy/pages.sh -type f -not -path '*/node_modules/*' -not -path 'web/dist/*' -not -name '*.md' \
    -not -name schema.d.ts -print0 |
    LC_ALL=C sort -z | xargs -0 cksum | cksum
}

built() { [[ -f web/dist/index.html && "$(cat "$STAMP" 2>/dev/null)" == "$(fingerprint)" ]]; }

new_enough() { # new_enough NODE
  "$1" -e 'const [a, b] = process.versions.node.split("."); process.exit(a > 20 || (a == 20 && b >= 19) ? 0 : 1)' \
    >/dev/null 2>&1
}

find_node() { # make sure that node and npm on PATH are new enough
  if command -v npm >/dev/null && new_enough node; then return; fi
  [[ -x .venv/bin/python ]] || fail 3 "Node.js 20.19 or later is not installed, and there is no .venv; run make setup first."
  export PATH="$PWD/.venv/bin:$PATH"
  new_enough .venv/bin/node && return
  say "Installing Node.js into .venv (once) ..."
  .venv/bin/python -m pip install --disable-pip-version-check --require-hashes -r requirements/web.txt >"$LOG" 2>&1 &&
    new_enough .venv/bin/node && return
  tell_log
  fail 1 "cannot install Node.js from requirements/web.txt (log: $LOG). The installation needs a package index;" \
    "alternatively, put Node.js 20.19 or later on PATH."
}

tell_log() { tail -n 15 "$LOG" >&2; }

install() {
  mkdir -p .venv # for the log file
  if [[ ! -d web/node_modules || "$(cksum <web/package-lock.json)" != "$(cat "$STAMP.lock" 2>/dev/null)" ]]; then
    say "Installing the build tools of the web pages (web/package-lock.json) ..."
    if ! npm --prefix web ci --no-audit --no-fund >"$LOG" 2>&1; then
      tell_log
      fail 1 "npm could not install web/package-lock.json (log: $LOG)." \
        "npm needs a package registry: check the network or set NPM_CONFIG_REGISTRY, then run the same command again."
    fi
    cksum <web/package-lock.json >"$STAMP.lock"
  fi
}

build() {
  local sources
  sources=$(fingerprint) # computed before the build, so that later changes trigger another build
  find_node
  install
  say "Building the web pages ..."
  if ! npm --prefix web run build >"$LOG" 2>&1; then
    tell_log
    fail 1 "the build of the web pages failed (log: $LOG)."
  fi
  [[ -f web/dist/index.html ]] || fail 1 "npm run build did not create web/dist/index.html (log: $LOG)."
  printf '%s\n' "$sources" >"$STAMP"
}

run() { # run SCRIPT...: run scripts of web/package.json
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
  [[ -d tests || ! -f web/dist/index.html ]] || return 0 # a release contains the pages, but not all sources
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
