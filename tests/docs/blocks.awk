# awk -v out=FOLDER -f blocks.awk PAGE.md: extracts the code blocks of a page.
#
# A block after the comment `<!-- file: NAME -->` is appended to FOLDER/NAME. Blocks of `sh` go to
# FOLDER/1.sh, 2.sh, ... A block after `<!-- output -->` is the expected output of the last of these
# scripts and goes to N.out.
function close_block() {
  inside = ""
  file = ""
  is_output = 0
}
/^<!-- file: .* -->$/ { file = $3; next }
/^<!-- output -->$/ { is_output = 1; next }
inside == "" && /^```[a-z]*$/ {
  inside = substr($0, 4) == "" ? "plain" : substr($0, 4)
  if (inside == "sh") {
    target = out "/" ++commands ".sh"
  } else if (is_output) {
    target = out "/" commands ".out"
  } else if (file != "") {
    target = out "/" file
    if (inside == "cpp") printf "#line %d \"%s\"\n", NR + 1, FILENAME >target
  } else {
    target = ""
  }
  next
}
inside != "" && /^```$/ { close_block(); next }
inside != "" && target != "" { print >target }
END {
  if (inside != "") {
    print FILENAME ": a block of code is not closed" >"/dev/stderr"
    exit 1
  }
}
