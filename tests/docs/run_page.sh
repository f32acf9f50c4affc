#!/usr/bin/env bash
# run_page.sh BUILD PAGE.md: follows a page as its reader would. Writes the files that the page
# shows, runs its commands in order, and compares their output where the page shows it.
#
# `./run` calls the tool of this build with a hundredth of the steps. The home folder is empty.
set -euo pipefail
build=$(realpath "$1")
page=$(realpath "$2")
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
work=$build/docs_test/$(basename "$page" .md)
rm -rf "$work"
mkdir -p "$work/blocks" "$work/home" "$work/tessera/build"
awk -v out="$work/blocks" -f "$here/blocks.awk" "$page"

ln -s "$build" "$work/tessera/build/release"
cat >"$work/tessera/run" <<SCRIPT
#!/usr/bin/env bash
# Two steps by default; --steps, --every and --sample are divided by 100.
[ \$# != 0 ] || set -- train lm --steps 2
arguments=()
for word; do
  case "\${previous:-}" in
    --steps | --every | --sample) arguments+=(\$(((word + 99) / 100))) ;;
    *) arguments+=("\$word") ;;
  esac
  previous=\$word
done
exec "$build/tools/tessera" "\${arguments[@]}"
SCRIPT
chmod +x "$work/tessera/run"

export HOME=$work/home
cd "$work/tessera"
for ((i = 1; ; ++i)); do
  script=$work/blocks/$i.sh
  [ -f "$script" ] || break
  sed 's/^/+ /' "$script"
  # Sourced, because a command such as `cd` must affect the ones after it.
  set +e
  . "$script" >"$work/$i.log" 2>&1
  rc=$?
  set -e
  cat "$work/$i.log"
  [ $rc = 0 ] || { echo "$page: command $i ended with $rc" >&2; exit 1; }
  if [ -f "$work/blocks/$i.out" ]; then diff "$work/blocks/$i.out" "$work/$i.log"; fi
  # The page's files belong in the folder that it tells the reader to create.
  if [ "$PWD" != "$work/tessera" ]; then
    find "$work/blocks" -type f ! -name '[0-9]*' -exec cp -n {} . \;
  fi
done
[ "$i" -gt 1 ] || { echo "$page: no commands" >&2; exit 1; }
