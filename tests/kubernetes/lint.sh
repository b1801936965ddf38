#!/usr/bin/env bash
# Runs checkov on what k8s/ builds: both overlays, alone and with all components that fit. What it shall not look for is in
# k8s/checkov.yaml, with the reasons. The first run installs it into .cluster/cache: 290 MB, which takes minutes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

readonly VERSION=3.3.30 FOLDER=.cluster/cache/checkov
WORK=$(mktemp -d)
readonly WORK
trap 'rm -rf "$WORK"' EXIT

install_checkov() {
  [[ $(cat "$FOLDER/version" 2>/dev/null) != "$VERSION" ]] || return 0
  printf 'Installing checkov %s into %s ...\n' "$VERSION" "$FOLDER" >&2
  rm -rf "$FOLDER"
  .venv/bin/python -m venv "$FOLDER"
  "$FOLDER/bin/pip" install --quiet "checkov==$VERSION"
  printf '%s\n' "$VERSION" >"$FOLDER/version"
}

build() { # build OVERLAY COMPONENT...
  local folder=$WORK/$1-$# top name
  mkdir "$folder"
  top=$(realpath --relative-to="$folder" k8s)
  {
    printf 'namespace: threads-cluster\nresources: [%s/overlays/%s]\ncomponents:\n' "$top" "$1"
    for name in "${@:2}"; do printf '  - %s/components/%s\n' "$top" "$name"; done
  } >"$folder/kustomization.yaml"
  kubectl kustomize "$folder" >"$folder/manifests.yaml"
  "$FOLDER/bin/checkov" --config-file k8s/checkov.yaml --file "$folder/manifests.yaml"
  printf 'checked: %s\n' "$*" >&2
}

install_checkov
build dev
build dev gpu ingress keda storage
build prod
build prod gpu ingress storage
