#include "stablehlo/bytecode/tables.h"

#include <charconv>
#include <compare>
#include <tuple>

#include <tessera/error.h>

namespace tessera::stablehlo::bytecode {

namespace {

constexpr std::string_view kMagic = "ML\xefR";
constexpr std::uint64_t kNewestBytecode = 6;
// A name is created for each use in the table, so a long name could take more memory than the file
// has.
constexpr std::size_t kLongestName = 128;

using Release = std::array<unsigned, 3>;
constexpr Release kNewestRelease = {1, 22, 0};

/// The release in `StableHLO_v1.13.0`; nullopt if another program wrote the file.
std::optional<Release> release_of(std::string_view producer) {
  constexpr std::string_view kPrefix = "StableHLO_v";
  if (!producer.starts_with(kPrefix)) return std::nullopt;
  Release result = {};
  const char* at = producer.data() + kPrefix.size();
  const char* end = producer.data() + producer.size();
  for (unsigned& part : result) {
    const auto [next, error] = std::from_chars(at, end, part);
    if (error != std::errc()) return std::nullopt;
    at = next == end ? next : next + 1;
  }
  return result;
}

void check_version(const Tables& tables) {
  const std::optional<Release> release = release_of(tables.producer);
  const bool is_newer = release && *release > kNewestRelease;
  if (!is_newer && tables.version <= kNewestBytecode) return;
  throw UserError({.what = "stablehlo: the version of the module is not supported",
                   .found = std::string(tables.producer) + ", bytecode version " +
                            std::to_string(tables.version),
                   .wanted = "at most StableHLO_v1.22.0, bytecode version 6",
                   .cure = "write the module for an older release: "
                           "serialize_portable_artifact(module, \"1.13.0\")"});
}

Cursor open_section(Cursor& at, std::uint8_t& id) {
  const std::uint8_t tag = at.byte();
  id = tag & 0x7FU;
  const std::uint64_t size = at.number();
  if ((tag & 0x80U) != 0) at.align(at.number());
  return at.part(size);
}

void read_header(Tables& tables) {
  if (!tables.file.starts_with(kMagic)) {
    throw UserError({.what = "stablehlo: this is not MLIR bytecode",
                     .found = std::to_string(tables.file.size()) +
                              " bytes that do not start with the signature of MLIR bytecode",
                     .wanted = "portable StableHLO bytecode",
                     .cure = "write jax.export.export(jitted)(...).mlir_module_serialized to a "
                             "file, in binary mode; text has no stable format"});
  }
  Cursor at(tables.file, kMagic.size(), tables.file.size());
  tables.version = at.number();
  tables.producer = at.text();
  check_version(tables);
  while (!at.at_end()) {
    std::uint8_t id = 0;
    const std::size_t start = at.position();
    const Cursor section = open_section(at, id);
    if (id >= Tables::kSections) fail_damaged(start, "section " + std::to_string(id));
    if (tables.sections.at(id)) fail_damaged(start, "a second section " + std::to_string(id));
    tables.sections.at(id) = section;
  }
}

// Lengths come first and count a zero byte at the end. Both are in reverse order: the last string
// comes first.
void read_strings(Tables& tables) {
  Cursor at = tables.section(Tables::strings);
  std::vector<std::uint64_t> lengths(at.count());
  for (std::uint64_t& length : lengths) length = at.number();
  for (auto length = lengths.rbegin(); length != lengths.rend(); ++length) {
    const std::string_view text = at.bytes(*length);
    if (text.empty()) fail_damaged(at.position(), "an unterminated string");
    tables.string_table.push_back(text.substr(0, text.size() - 1));
  }
}

std::vector<std::string_view> read_dialects(Tables& tables, Cursor& at) {
  std::vector<std::string_view> result(at.count());
  for (std::string_view& name : result) {
    const std::size_t start = at.position();
    const std::uint64_t code = at.number();
    const bool may_have_version = tables.version >= 1;
    name = tables.string_numbered(may_have_version ? code >> 1U : code, start);
    if (may_have_version && (code & 1U) != 0) {
      std::uint8_t id = 0;
      open_section(at, id);
    }
  }
  return result;
}

void read_operation_names(Tables& tables, Cursor& at, const std::vector<std::string_view>& dialects,
                          std::vector<std::string>& names) {
  if (tables.version >= 4) at.number();  // how many there are in all
  std::vector<bool> registered;
  while (!at.at_end()) {
    const std::string_view dialect = dialects[at.index(dialects.size(), "dialect")];
    const std::size_t count = at.count();
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t start = at.position();
      const std::uint64_t code = at.number();
      const std::string_view text =
          tables.string_numbered(tables.version >= 5 ? code >> 1U : code, start);
      std::string name(dialect.substr(0, kLongestName));
      name.append(".").append(text.substr(0, kLongestName));
      names.push_back(std::move(name));
      registered.push_back(tables.version < 5 || (code & 1U) != 0);
    }
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    tables.operation_names.push_back({.name = names[i], .is_registered = registered[i]});
  }
}

void read_entries(Tables& tables, const std::vector<std::string_view>& dialects) {
  Cursor at = tables.section(Tables::offsets);
  Cursor contents = tables.section(Tables::entries);
  const std::size_t attributes = at.count();
  const std::size_t types = at.count();
  auto read = [&](std::size_t wanted, std::vector<Tables::Entry>& result) {
    while (result.size() < wanted) {
      const std::size_t start = at.position();
      const std::string_view dialect = dialects[at.index(dialects.size(), "dialect")];
      const std::size_t count = at.count();
      if (count == 0 || count > wanted - result.size()) {
        fail_damaged(start, "a group of " + std::to_string(count) + " entries");
      }
      for (std::size_t i = 0; i < count; ++i) {
        const std::uint64_t code = at.number();
        const std::size_t begin = contents.position();
        const std::size_t size = contents.bytes(code >> 1U).size();
        result.push_back({dialect, begin, size, (code & 1U) != 0});
      }
    }
  };
  read(attributes, tables.attributes);
  read(types, tables.types);
}

void read_properties(Tables& tables) {
  if (!tables.sections[Tables::properties]) return;
  Cursor at = tables.section(Tables::properties);
  const std::size_t count = at.count();
  for (std::size_t i = 0; i < count; ++i) {
    tables.property_table.push_back(at.part(at.number()));
  }
}

}  // namespace

std::string_view Tables::string_numbered(std::uint64_t number, std::size_t offset) const {
  if (number >= string_table.size()) {
    fail_damaged(offset,
                 "string " + std::to_string(number) + " of " + std::to_string(string_table.size()));
  }
  return string_table[number];
}

Cursor Tables::section(Section which) const {
  if (!sections.at(which)) {
    fail_damaged(file.size(), "no section " + std::to_string(which));
  }
  return *sections.at(which);
}

Tables Tables::read(std::string_view file, std::vector<std::string>& names) {
  Tables tables;
  tables.file = file;
  read_header(tables);
  read_strings(tables);
  Cursor at = tables.section(dialects);
  const std::vector<std::string_view> dialect_names = read_dialects(tables, at);
  read_operation_names(tables, at, dialect_names, names);
  read_entries(tables, dialect_names);
  read_properties(tables);
  return tables;
}

}  // namespace tessera::stablehlo::bytecode
