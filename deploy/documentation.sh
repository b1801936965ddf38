#!/usr/bin/env bash
# Build the documentation site in web/dist/docs if it is missing or older than its sources.
# Usage: deploy/documentation.sh
# Exit codes: 0 the site is up to date, 1 the build failed, 2 usage error, 3 .venv does not contain MkDocs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly PYTHON=.venv/bin/python LOG=.venv/documentation.log STAMP=.venv/documentation.stamp
# The pages, and the code from which the reference is generated. web/Dockerfile.dockerignore has the same list.
readonly SOURCES=(mkdocs.yml .env.example docker-compose.yml web/openapi.json docs deploy engines jobs nginx tests
  threads_cluster threads_protocol web/README.md)

say() { printf '%s\n' "$*" >&2; }

fingerprint() {
  find "${SOURCES[@]}" -type f \( -name "*.md" -o -name "*.py" -o -name '*.yml' -o -path 'docs/*' -o -name '.env.example' \
    -o -name 'openapi.json' \) -not -path '*/__pycache__/*' -print0 | LC_ALL=C sort -z | xargs -0 cksum | cksum
}

main() {
  [[ $# -eq 0 ]] || { say "usage: deploy/documentation.sh" && return 2; }
  "$PYTHON" -c 'import mkdocs' 2>/dev/null || { say "error: .venv has no MkDocs. Run make setup first." && return 3; }
  [[ -d tests || ! -f web/dist/docs/index.html ]] || return 0 # a release contains the site, but not all sources
  local sources
  sources=$(fingerprint)
  [[ -f web/dist/docs/index.html && "$(cat "$STAMP" 2>/dev/null)" == "$sources" ]] && return
  say "Building the documentation ..."
  # Suppress the theme's notice about the next major version of MkDocs, which the pinned versions exclude.
  if ! NO_MKDOCS_2_WARNING=1 "$PYTHON" -m mkdocs build --quiet --strict >"$LOG" 2>&1; then
    tail -n 15 "$LOG" >&2
    say "error: the build of the documentation failed. $LOG has the complete output."
    return 1
  fi
  printf '%s\n' "$sources" >"$STAMP"
}

main "$@"
