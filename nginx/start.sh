#!/bin/sh
# Renders the configuration into /tmp/nginx and runs nginx in the foreground. README.md lists the variables.
set -eu

here=$(dirname "$0")
folder=${RENDERED:-/tmp/nginx}

resolver() { # the first of /etc/resolv.conf; Docker's own is 127.0.0.11
  found=$(sed -n 's/^nameserver[[:space:]]*\([^[:space:]]*\).*/\1/p' /etc/resolv.conf | head -n 1)
  case ${found:-127.0.0.11} in
    *:*) printf '[%s]' "$found" ;;
    *) printf '%s' "${found:-127.0.0.11}" ;;
  esac
}

render() { # render FILE
  sed -e "s|@RESOLVER@|${RESOLVER:-$(resolver)}|g" \
    -e "s|@COORDINATOR_HOST@|${COORDINATOR_HOST:-coordinator:3000}|g" \
    -e "s|@WEB_HOST@|${WEB_HOST:-web:8080}|g" \
    -e "s|@LISTEN_HTTP@|${LISTEN_HTTP:-8080}|g" \
    -e "s|@LISTEN_API@|${LISTEN_API:-3000}|g" \
    -e "s|@LISTEN_STATUS@|${LISTEN_STATUS:-8081}|g" \
    -e "s|@LISTEN_TLS@|${LISTEN_TLS:-8443}|g" \
    -e "s|@REQUEST_RATE@|${REQUEST_RATE:-200}|g" \
    -e "s|@REQUEST_BURST@|${REQUEST_BURST:-400}|g" \
    -e "s|@STREAMS@|${STREAMS:-64}|g" \
    -e "s|@TLS_CERTIFICATE@|$certificate|g" \
    -e "s|@TLS_KEY@|$key|g" \
    -e "s|/tmp/nginx|$folder|g" "$1"
}

certificate=${TLS_CERTIFICATE:-/run/secrets/tls.crt}
key=${TLS_KEY:-/run/secrets/tls.key}
mkdir -p "$folder"
for file in nginx server headers proxy problems api pages; do
  render "$here/conf/$file.conf" >"$folder/$file.conf"
done
if [ -e "$certificate" ] && [ -e "$key" ]; then
  render "$here/conf/tls.conf" >"$folder/servers.conf"
else
  : >"$folder/servers.conf"
fi
exec nginx -c "$folder/nginx.conf" -e stderr -g 'daemon off;'
