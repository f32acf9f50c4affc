# awk -f snippets.awk PAGE.md: prints a C++ file with every piece of code in the last column of the
# page's two-column tables. Pieces that end with a semicolon are statements, others are expressions.
# Only tables with the heading `Tessera` are used.
BEGIN {
  print "#include \"tests/docs/coming_from.h\"\n"
  print "namespace tessera::coming_from {\n"
  print "void every_snippet(Names names);"
  print "void every_snippet(Names names) {"
  print "  auto& [x, y, w, table, ids, labels, key, mesh, scope, model, grads, average, tx,"
  print "         state, dataset, program] = names;"
}
!/^\|/ { in_table = 0; next }
/\| Tessera \|$/ { in_table = 1; next }
!in_table || /^\| ---/ { next }
{
  line = $0
  gsub(/\\\|/, "\001", line)
  if (split(line, cells, "|") != 4) {
    printf "%s:%d: two columns wanted\n", FILENAME, NR >"/dev/stderr"
    exit 1
  }
  count = split(cells[3], parts, "`")
  for (i = 2; i < count; i += 2) {
    code = parts[i]
    gsub(/\001/, "|", code)
    if (code ~ /^(jit|shard_map|std::tuple|tessera .*)$/) continue  # named in a sentence
    printf "#line %d \"%s\"\n", NR, FILENAME
    print code ~ /;$/ ? "  { " code " }" : "  { [[maybe_unused]] const auto value = " code "; }"
    ++snippets
  }
}
END {
  print "}\n\n}  // namespace tessera::coming_from"
  if (snippets < 50) exit 1
}
