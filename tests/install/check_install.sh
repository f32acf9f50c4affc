#!/usr/bin/env bash
# check_install.sh BUILD: installs a build into an empty folder, compiles each installed header
# there, and configures, builds and runs the project of this folder with it.
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
