# shellcheck shell=bash
# Sourced by deploy-cluster.sh. Defines functions that the commands for Docker and Kubernetes share.

# shellcheck disable=SC2034  # used by other sourced files
PRETENDED=''    # yes: a dry run without an engine or a Kubernetes cluster
#: Timeout in seconds until everything is healthy; the first start compiles kernels.
readonly START_SECONDS=${START_SECONDS:-300}

begin() { # runs before any command for Docker or Kubernetes
  WORK=$(mktemp -d)
  trap 'rm -rf "$WORK"' EXIT
  trap 'unexpected "$?" "$LINENO" "$BASH_COMMAND"' ERR
}

unexpected() { # unexpected CODE LINE COMMAND: report a failure without another explanation
  ((BASH_SUBSHELL)) || [[ -e $WORK/said ]] || complain "a step failed with exit code $1 at line $2: ${3%%$'\n'*}" \
    "To print every step, run DEBUG=1 ./deploy-cluster.sh ..."
}

await() { # await SECONDS FUNCTION ARGUMENT...: wait until the function succeeds; fails after the timeout
  local until=$((SECONDS + $1))
  shift
  until "$@"; do
    ((SECONDS < until)) || return 1
    sleep 1
  done
}

from_caller() { # from_caller PATH: print a path relative to the user's working directory as an absolute path
  if [[ $1 == /* ]]; then printf '%s\n' "$1"; else printf '%s\n' "$CALLED_FROM/$1"; fi
}

section() { # section TITLE COMMAND...: print a section of the report, even if the command fails
  printf '\n## %s\n' "$1"
  "${@:2}" 2>&1 || printf '(not available)\n'
}

error_lines() { # error_lines [FILE...]: print the last 40 lines that report errors
  local pattern='"level": ?"(error|critical)"|level=(error|fatal)|\b(ERROR|CRITICAL|FATAL)\b|\[(error|crit|alert|emerg)\]|Traceback|OOM'
  grep -hE -- "$pattern" "$@" | tail -n 40 | grep . || printf 'none\n'
}

save_report() { # save_report PATH
  [[ -d $(dirname "$1") ]] || fail 2 "folder $(dirname "$1") does not exist."
  whole_report | redacted >"$WORK/report"
  cp "$WORK/report" "$1"
  say "Written: $1"
}

at_least() { # at_least HAVE WANTED: compare the first two numbers of versions
  [[ $1 =~ ^v?([0-9]+)\.([0-9]+) ]] || return 1
  local have=$((10#${BASH_REMATCH[1]} * 1000 + 10#${BASH_REMATCH[2]}))
  ((have >= ${2%%.*} * 1000 + ${2#*.}))
}

keep_context() { # keep_context URL: store the address of the cluster for the `cluster` command, if it is installed here
  change_contexts keep_at "$1"
}

forget_context() { # forget_context URL
  change_contexts delete_at "$1"
}

change_contexts() { # change_contexts FUNCTION URL
  [[ ! -x .venv/bin/python ]] ||
    run .venv/bin/python -c "import sys; from deploy.local import user_contexts; user_contexts.$1(sys.argv[1])" "$2" || true
}

run_quiet() { # run_quiet COMMAND...: run a command without output, because Docker repeats IDs
  if [[ -n $DRY ]]; then quoted "$@"; else "$@" >/dev/null; fi
}

# -- secrets ----------------------------------------------------------------------------------------------------------

secret_words() { # print all secret strings, one per line
  local file
  for file in "$SECRETS"/*; do
    [[ -f $file ]] || continue
    # Print the whole text, and long words in it such as a password in a URL.
    cat "$file"
    grep -oE '[A-Za-z0-9_+/=-]{16,}' "$file" || true
  done
  {
    cat "$ENV_FILE" 2>/dev/null || true
    env
  } | sed -nE 's/^(export +)?[A-Za-z0-9_]*(PASSWORD|TOKEN|SECRET|CREDENTIAL|_KEY)[A-Za-z0-9_]*=//p' |
    sed -E "s/^[\"'](.*)[\"']\$/\1/"
}

redacted() { # filter that removes passwords, tokens and user information in URLs
  secret_words | awk 'length($0) >= 6' | sort -u >"$WORK/words"
  LC_ALL=C awk -v file="$WORK/words" '
    BEGIN { while ((getline word < file) > 0) words[++n] = word }
    function without(line, word,   at, rest) {
      rest = ""
      while (at = index(line, word)) { rest = rest substr(line, 1, at - 1) "[redacted]"; line = substr(line, at + length(word)) }
      return rest line
    }
    {
      for (i = 1; i <= n; i++) $0 = without($0, words[i])
      gsub(/:\/\/[^\/@ "]*@/, "://[redacted]@")
      if ($0 ~ /(PASSWORD|TOKEN|SECRET|CREDENTIAL|_KEY)[A-Za-z0-9_]*"?[:=] *"?[^ \/]/ && $0 !~ /[:=] *"?\/run\/secrets\//) sub(/[:=] .*/, ": [redacted]")
      print
    }'
  rm -f "$WORK/words"
}
