# Rewrites the comments of a header for Doxygen: the comment at its top describes the file, and a
# comment after a member or an enumerator describes that.
!past_top && /^\/\// {
  sub(/^\/\//, "///")
  sub(/^\/\/\/   /, "///     ")  # code
  print
  next
}
!past_top { past_top = 1; if (/^#pragma once$/) { print "/// @file"; next } }
/^ *[^ \/].*[;,]  +\/\/ / && !/NOLINT/ { sub(/  \/\/ /, "  ///< ") }
/^  [a-z_0-9]+  +\/\/ / && !/NOLINT/ { sub(/  \/\/ /, "  ///< ") }
# Doxygen ends code in backticks at a single quote, so write double backticks there.
/\/\/\/.*`.*'.*`/ { gsub(/`[^`]*`/, "`&`") }
{ print }
