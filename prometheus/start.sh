#!/bin/sh
# Start Prometheus in a container with the settings ALERT_* and PUBLIC_URL. Arguments are passed to Prometheus.
set -eu
from=${PROMETHEUS_FROM:-/etc/prometheus} to=${PROMETHEUS_TO:-/tmp/prometheus}

rm -rf "$to"
mkdir -p "$to/rules"
# Symbolic links, so that a reload reads changed files.
ln -s "$from/prometheus.yml" "$to/prometheus.yml"
for file in "$from"/rules/*.yml; do
  ln -s "$file" "$to/rules/"
done
rm "$to/rules/thresholds.yml"

while IFS= read -r line; do
  case $line in
    *"record: 'alert:"*)
      name=${line#*alert:}
      name=${name%%:threshold*}
      setting=ALERT_$(echo "$name" | tr '[:lower:]' '[:upper:]')
      value=""
      eval "value=\${$setting:-}"
      case $value in
        '') ;;
        *[!0-9.]* | *.*.* | .)
          echo "$setting=$value is not a number; correct it in .env" >&2
          exit 2
          ;;
        *) line="${line%%vector(*}vector($value)}" ;;
      esac
      ;;
  esac
  printf '%s\n' "$line"
done <"$from/rules/thresholds.yml" >"$to/rules/thresholds.yml"

# HTTP_PORT is not set on Kubernetes, where 8080 is the documented port of `kubectl port-forward`.
export PUBLIC_URL="${PUBLIC_URL:-http://127.0.0.1:${HTTP_PORT:-8080}}"
exec prometheus --enable-feature=expand-external-labels "$@"
