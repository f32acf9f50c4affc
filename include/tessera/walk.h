// What a traversal of a tree collects.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/array.h>
#include <tessera/random.h>

namespace TESSERA_EXPORT tessera {

namespace detail {

/// What the macros record about a struct.
struct Fields {
  const void* object;
  std::size_t size, align;
  std::size_t hidden;  // bytes in front of the first field, e.g. for virtual functions
  const char* names;   // "a, b, c"
  bool is_module;
};

/// A traversal of a tree that collects its leaves and, on request, its structure or its paths. The
/// functions are marked cold, since they run only during tracing and small code compiles faster.
class Walk {
 public:
  /// structure: also a byte string that is equal for equal structures. paths: also the statics, and
  /// the paths of leaves and statics; checks that structs list all their fields.
  enum class Want : unsigned char { leaves, structure, paths };
  explicit Walk(Want want);
  TESSERA_COPYABLE(Walk);
  struct Leaf {
    Array* array;
    const std::shared_ptr<const ParamInfo>* param;  // *param is nullptr unless a parameter
    const std::shared_ptr<const ParamInfo>& info() const { return *param; }
  };
  const std::vector<Leaf>& leaves() const { return leaves_; }
  const std::string& structure() const { return structure_; }
  /// Throws UserError if two leaves have the same path.
  const std::vector<std::string>& paths();
  /// The path and the value of each static.
  const std::vector<std::pair<std::string, std::string>>& statics() const { return statics_; }
  const std::vector<std::string>& keys() const { return keys_; }  ///< of all maps, in order
  /// The number of leaves up to the end of each item of the outermost tuple.
  const std::vector<std::size_t>& item_ends() const { return item_ends_; }
  void leaf(Array& array);
  void leaf(Param& param);
  void leaf(random::Key& key);
  void fixed(std::string_view text);
  enum class Bits : unsigned char { boolean, integer, natural, real };
  template <typename T>
  static constexpr Bits kBitsOf = std::is_same_v<T, bool>       ? Bits::boolean
                                  : std::is_floating_point_v<T> ? Bits::real
                                  : std::is_unsigned_v<T>       ? Bits::natural
                                                                : Bits::integer;
  void fixed_bits(const void* value, std::size_t size, Bits kind);

  struct Field {
    const void* address;
    std::size_t size, align;
  };
  void enter_struct(const Fields& fields, const Field* list, std::size_t count);
  void enter_items(std::size_t count, bool is_list);
  void next_item(std::size_t index);
  void next_item(std::string_view name);
  void leave();

 private:
  struct Frame {
    std::size_t prefix;  // length of path_ outside
    const char* names;   // of a struct: the remaining ones
    bool opens_module;
    bool is_list;
  };
  void add(Array& array, const std::shared_ptr<const ParamInfo>& info);
  void enter(const char* names, bool is_module, bool is_list);
  static void check_fields(const Fields& fields, const Field* list, std::size_t count);
  std::string leaf_path(const ParamInfo* info) const;

  Want want_;
  std::vector<Leaf> leaves_;
  std::string structure_;
  std::vector<std::string> paths_;
  std::vector<std::pair<std::string, std::string>> statics_;
  std::vector<std::string> keys_;
  std::vector<std::size_t> item_ends_;
  std::vector<Frame> frames_;
  std::string path_;
  std::size_t module_prefix_ = std::string::npos;
};

}  // namespace detail

}  // namespace tessera
