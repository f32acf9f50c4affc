// The header of the safetensors format: u64 size, JSON, then the elements of all arrays without
// gaps.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <tessera/types.h>

namespace tessera::checkpoint {

class InputFile;

/// An array of a file; bytes [begin, end) after the header.
struct HeaderEntry {
  std::string name;
  Type type;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Lets the arrays follow each other, larger element types first so that all are aligned; in this
/// order the file has them.
void lay_out(std::vector<HeaderEntry>& entries);
/// The bytes before the elements.
std::string header_text(const std::vector<HeaderEntry>& entries,
                        const std::map<std::string, std::string>& metadata = {});

struct Header {
  std::int64_t size = 0;             // the bytes before the elements
  std::vector<HeaderEntry> entries;  // in the order of the file
};
/// Of a file of `file_size` bytes, where `json` stands between the size and the elements. Throws
/// BadText for what readers of the format refuse, and for types that arrays do not have.
Header parse_header(std::string_view json, std::int64_t file_size);
/// Throws BadText as well.
Header read_header(const InputFile& file);

}  // namespace tessera::checkpoint
