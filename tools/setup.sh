# Sourced by run, check and bench/run_benchmarks: Debian packages and builds.
tessera_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$tessera_root/tools/progress.sh"
build_packages=(g++ cmake ninja-build libfmt-dev libhwy-dev libcli11-dev nlohmann-json3-dev
  libxxhash-dev libcairo2-dev libzstd-dev libprotozero-dev zlib1g-dev)

# install_packages NAME...: installs the Debian packages that are missing. TESSERA_INSTALL=0 leaves
# it to the user, as does a system without dpkg.
install_packages() {
  local present missing=() name log
  if [ "${TESSERA_INSTALL:-1}" = 0 ] || ! command -v dpkg-query >/dev/null; then return 0; fi
  present=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" 2>/dev/null) || true
  for name in "$@"; do
    grep -qxF "installed $name" <<<"$present" || missing+=("$name")
  done
  if [ ${#missing[@]} = 0 ]; then return 0; fi
  local install=(env DEBIAN_FRONTEND=noninteractive
    apt-get install -y --no-install-recommends "${missing[@]}")
  # Descriptions in other languages are most of the lists.
  local update=(apt-get -o Acquire::Languages=none update)
  if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null || ! { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
      echo "Debian packages are missing; as root: apt-get install ${missing[*]}" >&2
      return 1
    fi
    install=(sudo "${install[@]}")
    update=(sudo "${update[@]}")
    sudo -n true 2>/dev/null || sudo -v  # asks for the password before the progress is shown
  fi
  local packages="${#missing[@]} Debian packages"
  echo "installing $packages: ${missing[*]}" >&2
  log=$(mktemp)
  # A fresh machine has no package lists and an old one outdated ones: the second try has new ones.
  if ! with_progress "installing $packages" "$log" "${install[@]}" &&
    ! { with_progress "reading the lists of packages" "$log" "${update[@]}" &&
      with_progress "installing $packages" "$log" "${install[@]}"; }; then
    tail -n 20 "$log" >&2
    echo "could not install; as root: apt-get update && apt-get install ${missing[*]}" >&2
    rm -f "$log"
    return 1
  fi
  rm -f "$log"
}

# is_built PRESET TARGET...: whether a build would do nothing.
is_built() {
  local dir=$tessera_root/build/$1
  shift
  [ -f "$dir/build.ninja" ] && [ "$(ninja -C "$dir" -n build.ninja "$@" | tail -n 1)" = \
    "ninja: no work to do." ]
}

# build PRESET TARGET...: configures where that was not done yet, and builds; one at a time.
build() {
  local preset=$1 dir=$tessera_root/build/$1
  shift
  mkdir -p "$dir"
  if command -v ccache >/dev/null; then export CMAKE_CXX_COMPILER_LAUNCHER=ccache; fi
  (
    flock 9
    if [ ! -f "$dir/build.ninja" ]; then
      (cd "$tessera_root" && cmake --preset "$preset") || exit
    fi
    ninja -C "$dir" "$@"
  ) 9>"$dir/.lock"
}
