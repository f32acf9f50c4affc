# Turns the links of a page to files that the reference leaves out into plain text, and those to its
# own headings, for which Doxygen 1.9 has no anchors.
{
  gsub(/\]\(#[^)]*\)/, "](#)")
  gsub(/\]\(\.\.\/[^)]*\)|\]\((tools\/README|CONTRIBUTING|docs\/PLAN|PLAN)\.md\)|\]\(examples\/[^)]*\)|\]\((docs\/)?decisions\/[^)]*\)/, "](#)")
  while (match($0, /\[[^]]*\]\(#\)/)) {
    $0 = substr($0, 1, RSTART - 1) substr($0, RSTART + 1, RLENGTH - 5) substr($0, RSTART + RLENGTH)
  }
  print
}
