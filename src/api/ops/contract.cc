// Contractions: dot, matmul, einsum over dot_general.
#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <map>
#include <numeric>
#include <string>

#include <tessera/linalg.h>
#include <tessera/ops.h>

#include "api/operands.h"

namespace tessera {

using detail::as_array;
using detail::emit;
using detail::Ints;
using detail::public_op;

namespace {

std::string both(const Array& a, const Array& b) {
  return detail::describe(a) + " and " + detail::describe(b);
}

void check_pairs(const char* name, const Array& a, const Array& b, Ints& dims_a, Ints& dims_b) {
  bool fits = dims_a.size() == dims_b.size();
  for (std::int64_t& dim : dims_a) {
    dim = detail::checked_axis(name, dim, a.rank(), detail::describe(a));
  }
  for (std::int64_t& dim : dims_b) {
    dim = detail::checked_axis(name, dim, b.rank(), detail::describe(b));
  }
  for (std::size_t i = 0; fits && i < dims_a.size(); ++i) {
    fits = a.shape()[static_cast<std::size_t>(dims_a[i])] ==
           b.shape()[static_cast<std::size_t>(dims_b[i])];
  }
  if (fits) return;
  detail::fail(name, "the contracting or batch dimensions differ in size", both(a, b),
               fmt::format("equal sizes along {} and {}", to_string(dims_a), to_string(dims_b)),
               "transpose or reshape one of the operands");
}

Array contract(const char* name, const Array& a, const Array& b, DotDims dims,
               std::optional<DType> result = std::nullopt) {
  detail::common_dtype(name, {a, b});
  check_pairs(name, a, b, dims.contract_a, dims.contract_b);
  check_pairs(name, a, b, dims.batch_a, dims.batch_b);
  const Array product = emit("dot_general", {a, b},
                             {{"lhs_batch", dims.batch_a},
                              {"lhs_contract", dims.contract_a},
                              {"rhs_batch", dims.batch_b},
                              {"rhs_contract", dims.contract_b}});
  return detail::with_dtype(product, result.value_or(a.dtype()));
}

void check_not_scalar(const char* name, const Array& a, const Array& b) {
  if (a.rank() > 0 && b.rank() > 0) return;
  detail::fail(name, "an operand is a scalar", both(a, b), "arrays of rank 1 or more",
               "multiply by a scalar with *");
}

/// A text like "bqhd,bkhd->bhqk".
struct EinsumText {
  std::vector<std::string> operands;
  std::string result;
};

/// The text of a call and, for error messages, its arrays.
struct EinsumCall {
  std::string_view text;
  std::string arrays;
};

[[noreturn]] void bad_text(const EinsumCall& call, const std::string& what) {
  detail::fail("einsum", what, fmt::format("\"{}\" of {}", call.text, call.arrays),
               "one letter per dimension, like \"bqhd,bkhd->bhqk\"",
               "write the dimensions of every operand, `->`, and the dimensions of the result");
}

bool contains(std::string_view letters, char letter) {
  return letters.find(letter) != std::string_view::npos;
}

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

constexpr std::string_view kEllipsis = "...";

/// The text of one array without its ellipsis. Throws UserError unless it consists of letters.
std::string named_letters(const EinsumCall& call, std::string part) {
  const std::size_t ellipsis = part.find(kEllipsis);
  if (ellipsis != std::string::npos) part.erase(ellipsis, kEllipsis.size());
  for (const char c : part) {
    if (c == '.') bad_text(call, "an array has dots besides one `...`");
    if (!is_letter(c)) bad_text(call, fmt::format("'{}' is not a letter", c));
  }
  return part;
}

/// How many dimensions the ellipsis of an operand stands for. Throws UserError if the letters do
/// not fit the rank.
std::int64_t ellipsis_rank(const EinsumCall& call, const std::string& part, std::int64_t rank) {
  const auto named = static_cast<std::int64_t>(named_letters(call, part).size());
  const bool fits = part.find(kEllipsis) == std::string::npos ? named == rank : named <= rank;
  if (!fits) {
    bad_text(call, fmt::format("\"{}\" has {} letters for an array of rank {}", part, named, rank));
  }
  return rank - named;
}

/// Stand-ins for letters: the last `count` of the `most` dimensions that ellipses stand for. These
/// dimensions are aligned at the last one, as in broadcasting.
std::string ellipsis_letters(std::int64_t count, std::int64_t most) {
  std::string letters;
  for (std::int64_t i = most - count; i < most; ++i) letters += static_cast<char>(i + 1);
  return letters;
}

std::string with_ellipsis(std::string part, const std::string& letters) {
  const std::size_t ellipsis = part.find(kEllipsis);
  return ellipsis == std::string::npos ? part : part.replace(ellipsis, kEllipsis.size(), letters);
}

/// The result of a text without `->`: the ellipsis, then the letters that occur once, as sorted.
std::string implicit_result(const std::string& named) {
  std::string result(kEllipsis);
  for (int c = 'A'; c <= 'z'; ++c) {
    const auto letter = static_cast<char>(c);
    if (std::count(named.begin(), named.end(), letter) == 1) result += letter;
  }
  return result;
}

void check_result(const EinsumCall& call, const std::string& letters, const std::string& named) {
  for (const char letter : letters) {
    if (std::count(letters.begin(), letters.end(), letter) > 1) {
      bad_text(call, fmt::format("'{}' names two dimensions of the result", letter));
    }
    if (contains(named, letter)) continue;
    bad_text(call, fmt::format("'{}' is in the result, but in no operand", letter));
  }
}

/// The parts of the text, one for each array, with one letter or stand-in for each dimension.
EinsumText parse(const EinsumCall& call, const std::vector<Array>& arrays) {
  std::string plain(call.text);
  plain.erase(std::remove(plain.begin(), plain.end(), ' '), plain.end());
  const std::size_t arrow = plain.find("->");
  EinsumText parts{.operands = {""}, .result = ""};
  for (const char letter : plain.substr(0, arrow)) {
    if (letter == ',') {
      parts.operands.emplace_back();
    } else {
      parts.operands.back() += letter;
    }
  }
  if (parts.operands.size() != arrays.size()) {
    bad_text(call, fmt::format("the number of operands in the text is not {}", arrays.size()));
  }
  std::string named;
  std::vector<std::int64_t> ranks;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    ranks.push_back(ellipsis_rank(call, parts.operands[i], arrays[i].rank()));
    named += named_letters(call, parts.operands[i]);
  }
  parts.result = arrow == std::string::npos ? implicit_result(named) : plain.substr(arrow + 2);
  check_result(call, named_letters(call, parts.result), named);
  const std::int64_t most = *std::max_element(ranks.begin(), ranks.end());
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    parts.operands[i] = with_ellipsis(parts.operands[i], ellipsis_letters(ranks[i], most));
  }
  parts.result = with_ellipsis(parts.result, ellipsis_letters(most, most));
  return parts;
}

/// Sums over the dimensions whose letters are not in `needed`, and removes these from `letters`.
Array sum_unneeded(Array x, std::string& letters, const std::string& needed) {
  Ints dims;
  std::string kept;
  for (std::size_t i = 0; i < letters.size(); ++i) {
    if (needed.find(letters[i]) == std::string::npos) {
      dims.push_back(static_cast<std::int64_t>(i));
    } else {
      kept += letters[i];
    }
  }
  if (dims.empty()) return x;
  letters = kept;
  return sum(x, Axes(dims));
}

Array ordered(const Array& x, const std::string& letters, const std::string& wanted) {
  if (letters == wanted) return x;
  Ints permutation;
  for (char letter : wanted) permutation.push_back(static_cast<std::int64_t>(letters.find(letter)));
  return transpose(x, permutation);
}

/// An array whose dimensions have letters.
struct Lettered {
  Array array;
  std::string letters;
};

[[noreturn]] void fail_sizes(const EinsumCall& call, char letter, std::int64_t size,
                             std::int64_t other) {
  const std::string name = is_letter(letter) ? fmt::format("'{}'", letter) : "a dimension of `...`";
  detail::fail("einsum", fmt::format("{} has the sizes {} and {}", name, size, other),
               fmt::format("\"{}\" of {}", call.text, call.arrays),
               "the same size for the same letter",
               "check the order of the letters against the shapes");
}

/// Takes the diagonal of dimensions that have the same letter, until each letter occurs once.
void take_diagonals(const EinsumCall& call, Lettered& x) {
  for (std::size_t first = 0; first < x.letters.size(); ++first) {
    const char letter = x.letters[first];
    for (std::size_t next = x.letters.find(letter, first + 1); next != std::string::npos;
         next = x.letters.find(letter, first + 1)) {
      Shape shape = x.array.shape();
      if (shape[first] != shape[next]) fail_sizes(call, letter, shape[first], shape[next]);
      shape[next] = 1;
      const auto dim = static_cast<std::int64_t>(next);
      const Array positions = iota(shape, static_cast<std::int64_t>(first));
      x.array = squeeze(take_along_axis(x.array, positions, dim), dim);
      x.letters.erase(next, 1);
    }
  }
}

using Sizes = std::map<char, std::int64_t>;

/// The sizes of the letters. Dimensions of size 1 are repeated to the size of the others.
Sizes sizes_of(const EinsumCall& call, const std::vector<Lettered>& operands) {
  Sizes sizes;
  for (const Lettered& x : operands) {
    for (std::size_t i = 0; i < x.letters.size(); ++i) {
      const std::int64_t size = x.array.shape()[i];
      std::int64_t& common = sizes.try_emplace(x.letters[i], size).first->second;
      if (common == 1) common = size;
      if (size != 1 && size != common) fail_sizes(call, x.letters[i], common, size);
    }
  }
  return sizes;
}

/// Removes the dimensions that have to be repeated: the product with the other operands does that.
void drop_repeated(Lettered& x, const Sizes& sizes) {
  Ints dims;
  std::string kept;
  for (std::size_t i = 0; i < x.letters.size(); ++i) {
    if (x.array.shape()[i] != sizes.at(x.letters[i])) {
      dims.push_back(static_cast<std::int64_t>(i));
    } else {
      kept += x.letters[i];
    }
  }
  if (dims.empty()) return;
  x = {squeeze(x.array, Axes(dims)), kept};
}

/// The product of two arrays, with the dimensions in `needed`: those of both first.
Lettered product(Lettered a, Lettered b, const std::string& needed) {
  a.array = sum_unneeded(a.array, a.letters, b.letters + needed);
  b.array = sum_unneeded(b.array, b.letters, a.letters + needed);
  DotDims dims;
  std::string batch, free_a, free_b;
  for (std::size_t i = 0; i < a.letters.size(); ++i) {
    const std::size_t k = b.letters.find(a.letters[i]);
    const bool is_kept = contains(needed, a.letters[i]);
    if (k == std::string::npos) {
      free_a += a.letters[i];
      continue;
    }
    (is_kept ? dims.batch_a : dims.contract_a).push_back(static_cast<std::int64_t>(i));
    (is_kept ? dims.batch_b : dims.contract_b).push_back(static_cast<std::int64_t>(k));
    if (is_kept) batch += a.letters[i];
  }
  for (char letter : b.letters) {
    if (!contains(a.letters, letter)) free_b += letter;
  }
  return {contract("einsum", a.array, b.array, dims), batch + free_a + free_b};
}

/// The letters of the result and of all operands except two.
std::string needed_besides(const std::vector<Lettered>& operands, std::size_t a, std::size_t b,
                           const std::string& result) {
  std::string needed = result;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (i != a && i != b) needed += operands[i].letters;
  }
  return needed;
}

/// By how many elements the arrays grow when these two are multiplied.
double growth(const std::vector<Lettered>& operands, std::size_t a, std::size_t b,
              const std::string& result, const Sizes& sizes) {
  const std::string needed = needed_besides(operands, a, b, result);
  double product_size = 1;
  for (const auto& [letter, size] : sizes) {
    const bool is_in_product =
        contains(operands[a].letters, letter) || contains(operands[b].letters, letter);
    if (is_in_product && contains(needed, letter)) product_size *= static_cast<double>(size);
  }
  return product_size - static_cast<double>(operands[a].array.size()) -
         static_cast<double>(operands[b].array.size());
}

/// Replaces two operands, those whose product is the smallest compared with them, by the product.
/// The choice depends only on global shapes, so that the bits do not depend on the mesh.
void multiply_best(std::vector<Lettered>& operands, const std::string& result, const Sizes& sizes) {
  std::size_t best_a = 0, best_b = 1;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t a = 0; a < operands.size(); ++a) {
    for (std::size_t b = a + 1; b < operands.size(); ++b) {
      const double grown = growth(operands, a, b, result, sizes);
      if (grown >= least) continue;
      least = grown;
      best_a = a;
      best_b = b;
    }
  }
  operands[best_a] =
      product(operands[best_a], operands[best_b], needed_besides(operands, best_a, best_b, result));
  operands.erase(operands.begin() + static_cast<std::ptrdiff_t>(best_b));
}

Array einsum_of(std::string_view text, const std::vector<Operand>& given) {
  if (given.empty()) {
    detail::fail("einsum", "there are no operands", fmt::format("\"{}\"", text),
                 "one operand or more", "pass the arrays that the text names");
  }
  std::vector<Array> arrays;
  std::string all;
  for (const Operand& operand : given) {
    arrays.push_back(as_array("einsum", operand));
    all += (all.empty() ? "" : " and ") + detail::describe(arrays.back());
  }
  const EinsumCall call{text, all};
  const EinsumText parts = parse(call, arrays);
  std::vector<Lettered> operands;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    operands.push_back({arrays[i], parts.operands[i]});
    take_diagonals(call, operands.back());
  }
  const Sizes sizes = sizes_of(call, operands);
  for (Lettered& x : operands) drop_repeated(x, sizes);
  while (operands.size() > 1) multiply_best(operands, parts.result, sizes);
  Lettered& last = operands[0];
  last.array = sum_unneeded(last.array, last.letters, parts.result);
  return ordered(last.array, last.letters, parts.result);
}

}  // namespace

Array dot_general(Operand a, Operand b, const DotDims& dims,
                  std::optional<DType> preferred_element_type) {
  return public_op(a.where, [&] {
    return contract("dot_general", as_array("dot_general", a), as_array("dot_general", b), dims,
                    preferred_element_type);
  });
}

Array dot(Operand a, Operand b) {
  return public_op(a.where, [&] {
    const Array x = as_array("dot", a);
    const Array y = as_array("dot", b);
    check_not_scalar("dot", x, y);
    return contract(
        "dot", x, y,
        {.contract_a = {x.rank() - 1}, .contract_b = {std::max<std::int64_t>(y.rank() - 2, 0)}});
  });
}

Array matmul(Operand a, Operand b) {
  return public_op(a.where, [&] {
    Array x = as_array("matmul", a);
    Array y = as_array("matmul", b);
    check_not_scalar("matmul", x, y);
    if (x.rank() == 1 || y.rank() <= 2) return dot(x, y);
    if (x.rank() == 2) {
      // dot: [m, k] x [..., k, n] -> [m, ..., n]. NumPy's result is [..., m, n].
      const Array product = dot(x, y);
      Ints permutation;
      for (std::int64_t i = 1; i < product.rank() - 1; ++i) permutation.push_back(i);
      permutation.push_back(0);
      permutation.push_back(product.rank() - 1);
      return transpose(product, permutation);
    }
    const Shape batch_x(x.shape().begin(), x.shape().end() - 2);
    const Shape batch_y(y.shape().begin(), y.shape().end() - 2);
    const Shape batch =
        detail::broadcast_shape("matmul, batch dimensions", {batch_x, batch_y}, both(x, y));
    auto widened = [&](const Array& v) {
      Shape shape = batch;
      shape.insert(shape.end(), v.shape().end() - 2, v.shape().end());
      return detail::broadcast(v, shape);
    };
    DotDims dims;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      dims.batch_a.push_back(static_cast<std::int64_t>(i));
    }
    dims.batch_b = dims.batch_a;
    const auto rank = static_cast<std::int64_t>(batch.size()) + 2;
    dims.contract_a = {rank - 1};
    dims.contract_b = {rank - 2};
    return contract("matmul", widened(x), widened(y), dims);
  });
}

Array einsum(std::string_view text, const std::vector<Operand>& operands,
             std::source_location where) {
  return public_op(where, [&] { return einsum_of(text, operands); });
}

Array einsum(std::string_view text, Operand a, Operand b) {
  const std::source_location where = a.where;
  return einsum(text, std::vector<Operand>{std::move(a), std::move(b)}, where);
}

Array einsum(std::string_view text, Operand a) {
  const std::source_location where = a.where;
  return einsum(text, std::vector<Operand>{std::move(a)}, where);
}

Array tensordot(Operand a, Operand b, std::vector<std::int64_t> axes_a,
                std::vector<std::int64_t> axes_b) {
  return public_op(a.where, [&] {
    return contract("tensordot", as_array("tensordot", a), as_array("tensordot", b),
                    {.contract_a = axes_a, .contract_b = axes_b});
  });
}

Array tensordot(Operand a, Operand b, std::int64_t count) {
  return public_op(a.where, [&] {
    const Array x = as_array("tensordot", a);
    const Array y = as_array("tensordot", b);
    if (count < 0 || count > std::min(x.rank(), y.rank())) {
      detail::fail("tensordot", fmt::format("there are no {} dimensions to sum over", count),
                   both(x, y), fmt::format("from 0 to {}", std::min(x.rank(), y.rank())),
                   "pass the number of dimensions that both arrays share");
    }
    Ints axes_a(static_cast<std::size_t>(count)), axes_b = axes_a;
    std::iota(axes_a.begin(), axes_a.end(), x.rank() - count);
    std::iota(axes_b.begin(), axes_b.end(), 0);
    return tensordot(x, y, axes_a, axes_b);
  });
}

}  // namespace tessera
