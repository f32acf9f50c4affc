#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <xxhash.h>

#include <tessera/checkpoint.h>
#include <tessera/engine.h>
#include <tessera/error.h>

namespace tessera::checkpoint {

namespace {

const char* safetensors_name(DType dtype) {
  switch (dtype) {
    case DType::boolean:
      return "BOOL";
    case DType::i32:
      return "I32";
    case DType::u32:
      return "U32";
    case DType::bf16:
      return "BF16";
    case DType::f32:
      return "F32";
    case DType::f64:
      break;
  }
  return "F64";
}

template <typename T>
std::string bytes_as(const Array& array) {
  const std::vector<T> elements = array.to_vector<T>();
  return {reinterpret_cast<const char*>(elements.data()), elements.size() * sizeof(T)};
}

std::string bytes_of(const Array& array) {
  switch (array.dtype()) {
    case DType::boolean:
      return bytes_as<std::uint8_t>(array);
    case DType::i32:
      return bytes_as<std::int32_t>(array);
    case DType::u32:
      return bytes_as<std::uint32_t>(array);
    case DType::bf16:
      return bytes_as<bfloat16>(array);
    case DType::f32:
      return bytes_as<float>(array);
    case DType::f64:
      break;
  }
  return bytes_as<double>(array);
}

void sort_by_name(std::vector<NamedArray>& arrays) {
  std::sort(arrays.begin(), arrays.end(),
            [](const NamedArray& a, const NamedArray& b) { return a.name < b.name; });
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + "\"";
}

/// All NaNs count as one value: which NaN an operation gives is not part of its meaning.
void unify_nans(DType dtype, std::string& bytes) {
  auto unify = [&]<typename T>(T nan) {
    for (std::size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
      T value;
      std::memcpy(&value, bytes.data() + at, sizeof(T));
      if (value != value) std::memcpy(bytes.data() + at, &nan, sizeof(T));
    }
  };
  if (dtype == DType::bf16) unify(bfloat16(std::numeric_limits<float>::quiet_NaN()));
  if (dtype == DType::f32) unify(std::numeric_limits<float>::quiet_NaN());
  if (dtype == DType::f64) unify(std::numeric_limits<double>::quiet_NaN());
}

}  // namespace

void write_safetensors(const std::string& path, std::vector<NamedArray> arrays) {
  sort_by_name(arrays);
  std::string header = "{";
  std::vector<std::string> data;
  std::size_t offset = 0;
  for (const NamedArray& item : arrays) {
    data.push_back(bytes_of(item.array));
    const std::size_t end = offset + data.back().size();
    header += (offset == 0 && header.size() == 1 ? "" : ",") + quoted(item.name) +
              ":{\"dtype\":\"" + safetensors_name(item.array.dtype()) +
              "\",\"shape\":" + to_string(item.array.shape()) + ",\"data_offsets\":[" +
              std::to_string(offset) + "," + std::to_string(end) + "]}";
    offset = end;
  }
  // With one process per device all of them take part in reading the arrays.
  if (process_index() != 0) return;
  header += "}";
  header.append((8 - header.size() % 8) % 8, ' ');
  const auto header_size = static_cast<std::uint64_t>(header.size());
  const std::string unfinished = path + ".tmp";
  std::ofstream file(unfinished, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&header_size), sizeof(header_size));
  file.write(header.data(), static_cast<std::streamsize>(header.size()));
  for (const std::string& bytes : data) {
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  file.close();
  if (!file || std::rename(unfinished.c_str(), path.c_str()) != 0) {
    std::remove(unfinished.c_str());
    throw RuntimeFault("cannot write " + path + ": " + std::strerror(errno));
  }
}

std::string fingerprint(std::vector<NamedArray> arrays) {
  sort_by_name(arrays);
  XXH3_state_t* state = XXH3_createState();
  XXH3_128bits_reset(state);
  for (const NamedArray& item : arrays) {
    const std::string head = item.name + " " + to_string(item.array.type()) + "\n";
    XXH3_128bits_update(state, head.data(), head.size());
    std::string bytes = bytes_of(item.array);
    unify_nans(item.array.dtype(), bytes);
    XXH3_128bits_update(state, bytes.data(), bytes.size());
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(state);
  XXH3_freeState(state);
  char text[33];
  std::snprintf(text, sizeof(text), "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return text;
}

}  // namespace tessera::checkpoint
