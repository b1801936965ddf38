#!/bin/sh
# Render the configuration to /tmp/nginx and run nginx in the foreground. README.md lists the variables.
set -eu

here=$(CDPATH='' cd "$(dirname "$0")" && pwd)
folder=${RENDERED:-/tmp/nginx}
script=$folder/render.sed
certificate=${TLS_CERTIFICATE:-/run/secrets/tls.crt}
key=${TLS_KEY:-/run/secrets/tls.key}

fail() { # fail MESSAGE
  printf 'error: %s\n' "$1" >&2
  exit 2
}

resolver() { # print the first resolver in /etc/resolv.conf; Docker's resolver is 127.0.0.11
  found=$(sed -n 's/^nameserver[[:space:]]*\([^[:space:]]*\).*/\1/p' /etc/resolv.conf | head -n 1)
  case ${found:-127.0.0.11} in
    *:*) printf '[%s]' "$found" ;;
    *) printf '%s' "${found:-127.0.0.11}" ;;
  esac
}

put() { # put NAME VALUE: replace @NAME@ by a value without special characters
  case $2 in
    '' | *[!A-Za-z0-9._:/[\]-]*) fail "$1 is '$2'; give letters, digits and . _ : / [ ] - only, see nginx/README.md" ;;
  esac
  printf 's|@%s@|%s|g\n' "$1" "$2" >>"$script"
}

count() { # count NAME VALUE
  case $2 in
    '' | 0* | *[!0-9]* | ??????????*) fail "$1 is '$2'; give a whole number from 1 to 999999999, see nginx/README.md" ;;
  esac
  put "$1" "$2"
}

http2() { # print the http2 directive, whose syntax changed in 1.25.1
  case $(nginx -v 2>&1) in
    */1.1[0-9].* | */1.2[0-5].*) printf 's|@HTTP2@||g\ns|@LISTEN_HTTP2@|http2|g\n' ;;
    *) printf 's|@HTTP2@|http2 on;|g\ns|@LISTEN_HTTP2@||g\n' ;;
  esac >>"$script"
}

render() { # render NAME...
  for name in "$@"; do
    sed -f "$script" "$here/conf/$name.conf" >"$folder/$name.conf"
  done
}

mkdir -p "$folder"
printf 's|/tmp/nginx/|%s/|g\n' "$folder" >"$script"
put RESOLVER "${RESOLVER:-$(resolver)}"
put COORDINATOR_HOST "${COORDINATOR_HOST:-coordinator:3000}"
put WEB_HOST "${WEB_HOST:-web:8080}"
put LISTEN_HTTP "${LISTEN_HTTP:-8080}"
put LISTEN_API "${LISTEN_API:-3000}"
put LISTEN_STATUS "${LISTEN_STATUS:-8081}"
put LISTEN_TLS "${LISTEN_TLS:-8443}"
put LISTEN_GRPC "${LISTEN_GRPC:-50051}"
put COORDINATOR_CALLS "${COORDINATOR_CALLS:-coordinator:50051}"
count REQUEST_RATE "${REQUEST_RATE:-200}"
count REQUEST_BURST "${REQUEST_BURST:-400}"
count FILE_RATE "${FILE_RATE:-100}"
count FILE_BURST "${FILE_BURST:-200}"
count TRANSFERS "${TRANSFERS:-8}"
count WORKER_RATE "${WORKER_RATE:-2000}"
count WORKER_BURST "${WORKER_BURST:-4000}"
count STREAMS "${STREAMS:-64}"
count CALLS "${CALLS:-256}"
count UPLOADS "${UPLOADS:-3}"
put TLS_CERTIFICATE "$certificate"
put TLS_KEY "$key"
put MORE "$here/more"
put SERVICES_DOMAIN "${SERVICES_DOMAIN:-localhost}"
http2

with_certificate() { # print the TLS directives of the servers for gRPC and services' pages
  {
    printf 's|@PAGES_TLS@|listen %s ssl; ssl_certificate %s; ssl_certificate_key %s; ssl_protocols TLSv1.2 TLSv1.3;|g\n' \
      "${LISTEN_TLS:-8443}" "$certificate" "$key"
    printf 's|@GRPC_TLS@|ssl|g\n'
    printf 's|@GRPC_CERTIFICATE@|ssl_certificate %s; ssl_certificate_key %s; ssl_protocols TLSv1.2 TLSv1.3;|g\n' \
      "$certificate" "$key"
  } >>"$script"
}

render nginx server headers proxy problems errors api pages
case $([ -e "$certificate" ] && echo certificate)+$([ -e "$key" ] && echo key) in
  certificate+key)
    render tls
    mv "$folder/tls.conf" "$folder/servers.conf"
    with_certificate
    ;;
  +)
    : >"$folder/servers.conf"
    printf 's|@GRPC_TLS@||g\ns|@GRPC_CERTIFICATE@||g\ns|@PAGES_TLS@||g\n' >>"$script"
    ;;
  certificate+) fail "there is a certificate, $certificate, and no key: put it at $key" ;;
  *) fail "there is a key, $key, and no certificate: put it at $certificate" ;;
esac
render grpc services
exec nginx -c "$folder/nginx.conf" -e stderr -g 'daemon off;'
