#!/bin/sh
# Start Prometheus in Compose with the alert thresholds of the settings ALERT_*. Arguments are passed to Prometheus.
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

exec prometheus "$@"
