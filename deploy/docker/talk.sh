# shellcheck shell=bash
# Sourced by deploy-cluster.sh: what is said, and what is run. Chatter goes to stderr, data to stdout. Runs on bash 3.2.

DRY=''

paint() { # paint NUMBER TEXT: in colour on a terminal
  if [[ -t 2 && -z ${NO_COLOR:-} ]]; then printf '\033[%sm%s\033[0m' "$1" "$2"; else printf '%s' "$2"; fi
}

say() { printf '%s\n' "$*" >&2; }

counted() { # counted NUMBER THING: 1 CPU worker, 2 CPU workers
  printf '%s %s' "$1" "$2"
  (($1 == 1)) || printf s
}

note() { say "$(paint 33 note:) $*"; }

complain() { # complain WHAT [LINE...]: what and why, then what to do
  say "$(paint 31 error:) $1"
  shift
  local line
  for line in "$@"; do say "  $line"; done
}

end_said() { # what ends this script has been said: nobody adds to it
  trap - ERR
  [[ -z ${WORK:-} ]] || : >"$WORK/said"
}

fail() { # fail CODE WHAT [LINE...]
  local code=$1
  shift
  end_said
  complain "$@"
  exit "$code"
}

wrong() { # wrong WHAT: a usage error
  end_said
  complain "$*"
  say "See: ./deploy-cluster.sh help"
  exit 2
}

number() { # number WHAT VALUE LOW HIGH
  if ! [[ $2 =~ ^(0|[1-9][0-9]{0,4})$ ]] || (($2 < $3 || $2 > $4)); then
    wrong "$1 needs a number from $3 to $4; got '$2'."
  fi
}

quoted() { # quoted COMMAND...: as one can paste it
  local word line='' plain='^[A-Za-z0-9_@%+=:,./-]+$'
  for word in "$@"; do
    [[ $word =~ $plain ]] || word="'${word//\'/\'\\\'\'}'"
    line="$line $word"
  done
  printf '%s\n' "${line# }"
}

run() { # run COMMAND...: with --dry-run it is only printed
  if [[ -n $DRY ]]; then quoted "$@"; else "$@"; fi
}

run_last() { # run_last COMMAND...: in place of this script
  if [[ -n $DRY ]]; then quoted "$@"; else exec "$@"; fi
}

sure() { # sure YES QUESTION: yes, or the user says so; nobody to ask: exit code 2
  [[ -z $1 && -z $DRY ]] || return 0
  [[ -t 0 ]] || fail 2 "this must be confirmed, and there is no terminal to ask." "Give --yes to go on without a question."
  local answer
  read -r -p "$2 [y/N] " answer || true
  [[ $answer == [yY] || $answer == [yY][eE][sS] ]] || fail 1 "not confirmed; nothing was changed."
}
