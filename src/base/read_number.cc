#include "base/read_number.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <locale.h>
#include <string>
#ifdef __APPLE__
#include <xlocale.h>
#endif

namespace tessera {

namespace {

// strtod would also read hexadecimal numbers, so a number ends before an x.
bool may_be_in_number(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ? c != 'x' && c != 'X'
                                                          : c == '.' || c == '+' || c == '-';
}

}  // namespace

std::from_chars_result detail::read_with_strtod(const char* begin, const char* end, double& value) {
  static const locale_t plain = newlocale(LC_ALL_MASK, "C", nullptr);
  const std::string text(begin, std::find_if_not(begin, end, may_be_in_number));
  if (text.starts_with('+')) return {begin, std::errc::invalid_argument};
  errno = 0;
  char* stop = nullptr;
  const double found = strtod_l(text.c_str(), &stop, plain);
  const auto length = stop - text.c_str();
  if (length == 0) return {begin, std::errc::invalid_argument};
  if (errno == ERANGE && (found == 0 || std::isinf(found)))
    return {begin + length, std::errc::result_out_of_range};
  value = found;
  return {begin + length, std::errc()};
}

std::from_chars_result read_number(const char* begin, const char* end, double& value) {
#if defined(_LIBCPP_VERSION) && _LIBCPP_VERSION < 200000
  return detail::read_with_strtod(begin, end, value);
#else
  return std::from_chars(begin, end, value);
#endif
}

}  // namespace tessera
