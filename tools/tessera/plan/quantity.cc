#include "quantity.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <tessera/error.h>

namespace tessera::cli {

namespace {

struct Unit {
  std::string name;
  double size;
  bool is_for_text = true;  // quantity_text() writes it
};

/// The units of a quantity, from the smallest on, and what the messages say about it.
struct Units {
  std::vector<Unit> units;
  const char* what;
  const char* example;
  bool may_be_zero = false;
};

Units byte_rates() {
  Units rates{.units = {{"B/s", 1}}, .what = "a number of bytes per second", .example = "25GB/s"};
  double decimal = 1;
  double binary = 1;
  for (const char* prefix : {"k", "M", "G", "T", "P"}) {
    decimal *= 1000;
    binary *= 1024;
    const std::string letter = prefix;
    rates.units.push_back({letter + "B/s", decimal});
    rates.units.push_back({(letter == "k" ? "K" : letter) + "iB/s", binary, false});
    rates.units.push_back({letter + "bit/s", decimal / 8, false});
  }
  return rates;
}

Units flop_rates() {
  Units rates{
      .units = {{"FLOP/s", 1}}, .what = "a number of FLOP per second", .example = "20TFLOP/s"};
  double size = 1;
  for (const char* prefix : {"k", "M", "G", "T", "P"}) {
    size *= 1000;
    rates.units.push_back({prefix + std::string("FLOP/s"), size});
  }
  return rates;
}

Units times() {
  return {.units = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}},
          .what = "a time",
          .example = "2us",
          .may_be_zero = true};
}

const Units& units_of(Quantity quantity) {
  static const std::array<Units, 3> all = {byte_rates(), flop_rates(), times()};
  return all[static_cast<std::size_t>(quantity)];
}

std::string names_of(const Units& units) {
  std::string names;
  for (const Unit& unit : units.units) names += (names.empty() ? "" : ", ") + unit.name;
  return names;
}

}  // namespace

double parse_quantity(const std::string& flag, const std::string& text, Quantity quantity) {
  const Units& units = units_of(quantity);
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  std::string name = end;
  name.erase(0, name.find_first_not_of(' '));
  const bool is_number = end != text.c_str() && std::isfinite(number) &&
                         (number > 0 || (number == 0 && units.may_be_zero));
  for (const Unit& unit : units.units) {
    if (is_number && unit.name == name) return number * unit.size;
  }
  throw UserError({.what = flag + ": this is not " + units.what,
                   .found = flag + " " + text,
                   .wanted = std::string("a number ") +
                             (units.may_be_zero ? "of at least" : "above") +
                             " 0 with one of the units " + names_of(units),
                   .cure = "write for example " + flag + " " + units.example});
}

std::string quantity_text(double value, Quantity quantity) {
  const Units& units = units_of(quantity);
  const Unit* best = &units.units[0];
  for (const Unit& unit : units.units) {
    if (unit.is_for_text && value >= unit.size * 0.9995) best = &unit;
  }
  char text[64];
  std::snprintf(text, sizeof(text), "%.4g %s", value / best->size, best->name.c_str());
  return text;
}

}  // namespace tessera::cli
