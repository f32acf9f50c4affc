#!/usr/bin/env bash
# check_shared.sh BUILD COMMAND SHARED: installs the shared libraries of a build and looks at what
# they show; builds and runs the project of this folder with them, by CMake and by pkg-config; and
# compares what two commands do: COMMAND, which is linked with the static libraries, and SHARED, the
# same objects linked with the shared ones.
set -euo pipefail
build=$(realpath "$1")
command=$2
shared=$3
source_dir=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
root=$source_dir/../..
work=$build/shared_test
rm -rf "$work"
mkdir -p "$work"

fail() {
  echo "$*" >&2
  exit 1
}

cmake --install "$build" --prefix "$work/first" >"$work/install.log"
cmake --install "$build" --prefix "$work/first" --component shared >>"$work/install.log"
# The package must still work after it has been moved.
mv "$work/first" "$work/prefix"
libraries=$(dirname "$(find "$work/prefix" -name libtessera.so)")

# Only names of namespace tessera, and none of the namespaces that the folders of src/ have for
# themselves, but for structs that public headers name.
internal=$(for folder in "$root"/src/*/; do
  name=$(basename "$folder")
  if [ "$name" != profile ]; then printf '%s%s|' ${#name} "$name"; fi
done)
compiler=$(sed -n 's/^CMAKE_CXX_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
version=$(sed -nE 's/^project\(tessera VERSION ([0-9]+\.[0-9]+)\..*/\1/p' "$root/CMakeLists.txt")
for name in tessera tessera_lib; do
  library=$libraries/lib$name.so.$version
  readelf --dynamic "$library" | grep -qF "soname: [lib$name.so.$version]"
  nm --dynamic --defined-only --format=posix "$library" | cut -d' ' -f1 >"$work/$name.txt"
  grep -qE "^_ZN7tessera.*@@TESSERA_$version\$" "$work/$name.txt"
  kinds='typeinfo|typeinfo name|vtable|VTT|guard variable'
  if foreign=$(c++filt <"$work/$name.txt" | sed -E "s/^(($kinds) for )?//" |
    grep -vE "^([^(]*[ *&>])?tessera::|^_ZN7tessera|^TESSERA_$version(@@TESSERA_$version)?\$"); then
    fail "lib$name.so shows symbols of other libraries: $foreign"
  fi
  # Clang cannot hide it (cmake/TesseraBuild.cmake).
  if [[ $compiler != *clang* ]] &&
    hidden=$(grep -E "^_Z[A-Z]*N[KRO]*7tessera($internal-)" "$work/$name.txt"); then
    fail "lib$name.so shows what is internal: $(c++filt <<<"$hidden")"
  fi
done
[ "$(wc -l <"$work/tessera.txt")" -gt 500 ]  # so that there was something to look at

# The other libraries need not be there to build a program.
cmake -S "$source_dir" -B "$work/build" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" \
  -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON -DCMAKE_DISABLE_FIND_PACKAGE_fmt=ON
cmake --build "$work/build"
[ "$("$work/build/descent")" = "w = 3.000" ]
readelf --dynamic "$work/build/descent" | grep -qF "[libtessera.so.$version]"

if command -v pkg-config >/dev/null; then
  PKG_CONFIG_PATH=$libraries/pkgconfig
  export PKG_CONFIG_PATH
  read -ra flags < <(pkg-config --cflags --libs tessera)
  "${CXX:-c++}" -std=c++20 "$source_dir/main.cc" "${flags[@]}" -Wl,-rpath,"$libraries" \
    -o "$work/descent"
  [ "$("$work/descent")" = "w = 3.000" ]
  readelf --dynamic "$work/descent" | grep -qF "[libtessera.so.$version]"
fi

# outcome PROGRAM ARGUMENTS...: what a run prints, without times and paths, and its exit status.
outcome() {
  local rc=0
  "$@" 2>&1 || rc=$?
  echo "exit status $rc"
}
small=(train lm --steps 3 --batch 4 --seq 16 --d-model 32 --d-ff 64 --heads 2 --layers 1)
small+=(--mesh data=2 --progress off --json -)
for program in "$command" "$shared"; do
  outcome "$program" "${small[@]}" |
    grep -oE '"(params_hash":"[^"]*"|loss_bits":\[[^]]*\])|exit status.*'
  # Errors are caught on the other side.
  outcome "$program" train lm --text /nowhere
done | awk '{ lines[NR] = $0 }
  END { half = NR / 2; for (i = 1; i <= half; ++i) if (lines[i] != lines[i + half]) exit 1 }' ||
  fail "the command behaves differently with the shared libraries"
