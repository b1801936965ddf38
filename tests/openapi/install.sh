#!/usr/bin/env bash
# Install the tools of `make openapi-test` into .cluster/cache/openapi (150 MB). They are not development packages,
# because openapi-python-client needs an older Typer than this project.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

readonly FOLDER=.cluster/cache/openapi
readonly PACKAGES=(openapi-python-client==0.29.1 openapi-spec-validator==0.9.0)
readonly NODE_PACKAGES=(@stoplight/spectral-cli@6.16.3 @redocly/cli@2.77.0 openapi-fetch@0.17.0)

wanted="${PACKAGES[*]} ${NODE_PACKAGES[*]}"
[[ $(cat "$FOLDER/versions" 2>/dev/null) != "$wanted" ]] || exit 0
printf 'Installing the tools into %s ...\n' "$FOLDER" >&2
rm -rf "$FOLDER"
.venv/bin/python -m venv "$FOLDER"
"$FOLDER/bin/pip" install --quiet --disable-pip-version-check "${PACKAGES[@]}"
PATH=$PATH:$PWD/.venv/bin npm install --prefix "$FOLDER" --no-save --no-audit --no-fund --ignore-scripts --silent "${NODE_PACKAGES[@]}"
printf '%s\n' "$wanted" >"$FOLDER/versions"
