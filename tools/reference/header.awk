# How the comments of a header reach Doxygen: the one at its top becomes the description of the
# file, and those behind a member or an enumerator become its description.
!past_top && /^\/\// {
  sub(/^\/\//, "///")
  sub(/^\/\/\/   /, "///     ")  # code
  print
  next
}
!past_top { past_top = 1; if (/^#pragma once$/) { print "/// @file"; next } }
/^ *[^ \/].*[;,]  +\/\/ / && !/NOLINT/ { sub(/  \/\/ /, "  ///< ") }
/^  [a-z_0-9]+  +\/\/ / && !/NOLINT/ { sub(/  \/\/ /, "  ///< ") }
# Doxygen ends code at a single quote unless two backticks open it.
/\/\/\/.*`.*'.*`/ { gsub(/`[^`]*`/, "`&`") }
{ print }
