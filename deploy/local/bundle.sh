# shellcheck shell=bash
# Sourced by deploy-cluster.sh. Writes bundles, and installs from them. This file also works with bash 3.2.

cmd_bundle() { # bundle FILE [--platform P] [--python V] [--engine E] [--gpu]
  local file=${1:-}
  [[ -n $file && $file != -* ]] || wrong "bundle needs a file for the archive, such as: bundle threads-cluster.tar"
  shift
  [[ $file == /* ]] || file=$CALLED_FROM/$file
  run deploy/environment.sh local
  run_last .venv/bin/python -m deploy.bundle "$file" "$@"
}

bundle_folder() { # print the folder of the unpacked bundle. The user of the system's cluster must not change its packages
  if [[ $CLUSTER_HOME == "/var/lib/$SYSTEM_USER" ]]; then
    printf '%s\n' "/usr/local/share/$SYSTEM_USER/bundle"
  else
    printf '%s\n' "$CLUSTER_HOME/.cluster/bundle"
  fi
}

unpack_bundle() { # unpack_bundle FILE: check a bundle, and replace the unpacked bundle by it
  local file=$1 folder new sums=(sha256sum)
  folder=$(bundle_folder)
  new=$folder.new
  [[ $file == /* ]] || file=$CALLED_FROM/$file
  [[ -f $file ]] || fail 1 "the bundle $file does not exist." "Create it on a machine with a network: ./deploy-cluster.sh bundle FILE"
  command -v sha256sum >/dev/null || sums=(shasum -a 256)
  say "Checking and unpacking $file ..."
  [[ $folder != */.cluster/* || -d ${folder%/*} ]] || mkdir -m 700 "${folder%/*}"
  rm -rf "$new"
  mkdir -p "$new"
  if ! tar -xf "$file" -C "$new" --strip-components=1 || ! (cd "$new" && "${sums[@]}" -c SHA256SUMS >sums.log 2>&1); then
    ! grep -v ': OK$' "$new/sums.log" >&2 || true
    rm -rf "$new"
    fail 1 "the bundle $file is damaged or not a bundle; nothing was installed." "Copy it again, and compare the SHA-256 that the command bundle printed."
  fi
  rm -rf "$folder"
  mv "$new" "$folder"
}

OTHERS=() # options of local other than --bundle

install_bundle() { # install_bundle OPTION...: unpack the bundle that the options of local name, and use the unpacked one
  OTHERS=()
  while (($#)); do
    if [[ $1 == --bundle ]]; then
      run unpack_bundle "$2"
      shift
    else
      OTHERS+=("$1")
    fi
    shift
  done
  use_bundle
}

use_bundle() { # let pip install from the unpacked bundle, if there is one, and never from an index
  local folder
  folder=$(bundle_folder)
  [[ -d $folder/wheels ]] || return 0
  # A list in this variable is separated by spaces.
  export PIP_NO_INDEX=1 PIP_FIND_LINKS=file://${folder// /%20}/wheels CLUSTER_BUNDLE=$folder
}
