# Sourced by run, check and bench/run_benchmarks: installs Debian packages and builds.
tessera_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$tessera_root/tools/progress.sh"
build_packages=(g++ cmake ninja-build libfmt-dev libhwy-dev libcli11-dev nlohmann-json3-dev
  libxxhash-dev libcairo2-dev libzstd-dev libprotozero-dev zlib1g-dev)
if [ "$(uname -m)" = x86_64 ]; then build_packages+=(libxbyak-dev); fi

# The preset that ./run and plugin/build use.
preset=${TESSERA_PRESET:-release}

# install_packages NAME...: installs the Debian packages that are missing. Does nothing with
# TESSERA_INSTALL=0 or on a system without dpkg: then the user installs what is needed.
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
  # Skip the translated descriptions, which are most of the package lists.
  local update=(apt-get -o Acquire::Languages=none update)
  if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null || ! { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
      echo "Debian packages are missing; install them as root: apt-get install ${missing[*]}" >&2
      return 1
    fi
    install=(sudo "${install[@]}")
    update=(sudo "${update[@]}")
    sudo -n true 2>/dev/null || sudo -v  # asks for the password before the progress is shown
  fi
  local packages="${#missing[@]} Debian packages"
  echo "installing $packages: ${missing[*]}" >&2
  log=$(mktemp)
  # The package lists may be missing or outdated: if the installation fails, update them and retry.
  if ! with_progress "installing $packages" "$log" "${install[@]}" &&
    ! { with_progress "updating the package lists" "$log" "${update[@]}" &&
      with_progress "installing $packages" "$log" "${install[@]}"; }; then
    tail -n 20 "$log" >&2
    echo "the installation failed; try as root: apt-get update && apt-get install ${missing[*]}" >&2
    rm -f "$log"
    return 1
  fi
  rm -f "$log"
}

# is_built PRESET TARGET...: succeeds if there is nothing left to build.
is_built() {
  local dir=$tessera_root/build/$1
  shift
  [ -f "$dir/build.ninja" ] && [ "$(ninja -C "$dir" -n build.ninja "$@" | tail -n 1)" = \
    "ninja: no work to do." ]
}

# build PRESET TARGET...: configures if needed, and builds. A lock lets one build run at a time.
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
