// The header of the safetensors format. A file consists of the size of the JSON as u64, the JSON,
// and the elements of all arrays without gaps.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <tessera/types.h>

namespace tessera::checkpoint {

class InputFile;

/// A tensor of a file. Its elements are the bytes [begin, end), counted from the end of the header.
struct HeaderEntry {
  std::string name;
  Type type;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  /// The dtype in the file, if arrays do not have it. Then type.dtype means nothing.
  std::string foreign = {};
};

/// Sorts the arrays into their order in the file and sets `begin` and `end`, without gaps. Larger
/// element types come first, so that all arrays are aligned.
void lay_out(std::vector<HeaderEntry>& entries);
/// All bytes of the file before the elements: the size and the JSON.
std::string header_text(const std::vector<HeaderEntry>& entries,
                        const std::map<std::string, std::string>& metadata = {});

struct Header {
  std::int64_t size = 0;             // the bytes before the elements
  std::vector<HeaderEntry> entries;  // in the order of the file
};
/// Parses the JSON of a file that has `file_size` bytes in total. Throws BadText for anything that
/// other readers of the format refuse.
Header parse_header(std::string_view json, std::int64_t file_size);
/// Reads and parses the header of a file; throws BadText like parse_header().
Header read_header(const InputFile& file);

}  // namespace tessera::checkpoint
