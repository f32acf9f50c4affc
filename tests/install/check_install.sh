#!/usr/bin/env bash
# check_install.sh BUILD: installs a build into an empty folder, compiles each installed header
# there, and configures, builds and runs the project of this folder with it, by CMake and by
# pkg-config. Then configures the project of fetched/, which contains Tessera.
set -euo pipefail
build=$(realpath "$1")
source_dir=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
work=$build/install_test
rm -rf "$work"
mkdir -p "$work"

cmake --install "$build" --prefix "$work/first" >"$work/install.log"
# The package must still work after it has been moved.
mv "$work/first" "$work/prefix"

# Only the installed headers are on the include path, so that a private include fails.
for header in "$work/prefix/include/tessera"/*.h; do
  echo "#include <tessera/$(basename "$header")>"
done >"$work/headers.cc"
"${CXX:-c++}" -std=c++20 -fsyntax-only -I"$work/prefix/include" "$work/headers.cc"

cmake -S "$source_dir" -B "$work/build" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" \
  -DCMAKE_BUILD_TYPE=Release
cmake --build "$work/build"
out=$("$work/build/descent")
echo "$out"
[ "$out" = "w = 3.000" ]
"$work/prefix/bin/tessera" --help >"$work/help.txt"

if command -v pkg-config >/dev/null; then
  PKG_CONFIG_PATH=$(dirname "$(find "$work/prefix" -name tessera.pc)")
  export PKG_CONFIG_PATH
  read -ra flags < <(pkg-config --cflags --libs tessera)
  "${CXX:-c++}" -std=c++20 "$source_dir/main.cc" "${flags[@]}" -o "$work/descent"
  [ "$("$work/descent")" = "w = 3.000" ]
fi

# What it would build is read only: the objects are those of this build.
cmake -S "$source_dir/fetched" -B "$work/fetched" -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DFETCHCONTENT_SOURCE_DIR_TESSERA="$(realpath "$source_dir/../..")" >"$work/fetched.log"
ninja -C "$work/fetched" -t inputs descent >"$work/inputs.txt"
grep -q 'libtessera\.a$' "$work/inputs.txt"
if grep -E 'CLI11|tools/|gtest' "$work/inputs.txt"; then
  echo "a project that contains Tessera builds more than the libraries" >&2
  exit 1
fi
