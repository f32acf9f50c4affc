#include <cstring>

#include <tessera/data.h>

#include "data/file.h"
#include "data/npy_file.h"

namespace tessera::data {

namespace {

using Bytes = std::vector<std::uint8_t>;

const NpyReader& reader() {
  static const NpyReader one{
      .types = {"|u1", "<i4", "<f4"},
      .least_rank = 1,
      .takes_empty = false,
      .wanted = "an array of |u1, <i4 or <f4 with at least one dimension",
      .cure = "write it with numpy.save(path, array.astype(\"<f4\")), or as \"<i4\" or \"|u1\""};
  return one;
}

class Npy final : public Source {
 public:
  explicit Npy(const std::string& path)
      : bytes_(read_file(path, "npy", "a readable .npy file", "check the path")),
        header_(accepted_npy_header(bytes_, path, reader())),
        record_bytes_((bytes_.size() - header_.begin) /
                      static_cast<std::uint64_t>(header_.shape[0])) {}
  std::int64_t size() const override { return header_.shape[0]; }
  Record read(std::int64_t record, RecordRandom& /*random*/) const override {
    HostArray field{.shape = {header_.shape.begin() + 1, header_.shape.end()}, .values = {}};
    const std::uint8_t* from =
        bytes_.data() + header_.begin + static_cast<std::uint64_t>(record) * record_bytes_;
    if (header_.type == "|u1") field.values = copied<std::uint8_t>(from);
    if (header_.type == "<i4") field.values = copied<std::int32_t>(from);
    if (header_.type == "<f4") field.values = copied<float>(from);
    return {std::move(field)};
  }

 private:
  template <typename T>
  std::vector<T> copied(const std::uint8_t* from) const {
    std::vector<T> values(record_bytes_ / sizeof(T));
    std::memcpy(values.data(), from, record_bytes_);
    return values;
  }

  Bytes bytes_;
  NpyHeader header_;
  std::uint64_t record_bytes_;
};

}  // namespace

Dataset npy(const std::string& path, std::source_location where) {
  return at_line(where, [&] { return Dataset(std::make_shared<Npy>(path)); });
}

}  // namespace tessera::data
