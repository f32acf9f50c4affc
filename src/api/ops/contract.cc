// Contractions: dot, matmul, einsum over dot_general.
#include <algorithm>
#include <fmt/format.h>
#include <string>

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
  std::string a, b, result;
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

void check_letters(const EinsumCall& call, const std::string& letters, std::int64_t rank) {
  for (char letter : letters) {
    const bool is_letter = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
    if (!is_letter) bad_text(call, fmt::format("'{}' is not a letter", letter));
    if (std::count(letters.begin(), letters.end(), letter) > 1) {
      bad_text(call, fmt::format("'{}' names two dimensions of one array", letter));
    }
  }
  if (rank >= 0 && static_cast<std::int64_t>(letters.size()) != rank) {
    bad_text(call, fmt::format("\"{}\" has {} letters for an array of rank {}", letters,
                               letters.size(), rank));
  }
}

EinsumText parse(const EinsumCall& call, std::int64_t rank_a, std::int64_t rank_b) {
  std::string plain(call.text);
  plain.erase(std::remove(plain.begin(), plain.end(), ' '), plain.end());
  const std::size_t arrow = plain.find("->");
  if (arrow == std::string::npos) bad_text(call, "-> is missing");
  EinsumText parts{.a = plain.substr(0, arrow), .b = {}, .result = plain.substr(arrow + 2)};
  const std::size_t comma = parts.a.find(',');
  if ((comma != std::string::npos) != (rank_b >= 0)) {
    bad_text(call,
             fmt::format("the number of operands in the text is not {}", rank_b >= 0 ? 2 : 1));
  }
  if (comma != std::string::npos) {
    parts.b = parts.a.substr(comma + 1);
    parts.a.resize(comma);
  }
  check_letters(call, parts.a, rank_a);
  if (rank_b >= 0) check_letters(call, parts.b, rank_b);
  check_letters(call, parts.result, -1);
  for (char letter : parts.result) {
    if (parts.a.find(letter) == std::string::npos && parts.b.find(letter) == std::string::npos) {
      bad_text(call, fmt::format("'{}' is in the result, but in no operand", letter));
    }
  }
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

Array einsum_of_two(std::string_view text, Array a, Array b) {
  EinsumText parts = parse({text, both(a, b)}, a.rank(), b.rank());
  for (std::size_t i = 0; i < parts.a.size(); ++i) {
    const std::size_t k = parts.b.find(parts.a[i]);
    if (k == std::string::npos || a.shape()[i] == b.shape()[k]) continue;
    detail::fail(
        "einsum",
        fmt::format("'{}' has the sizes {} and {}", parts.a[i], a.shape()[i], b.shape()[k]),
        fmt::format("\"{}\" of {}", text, both(a, b)), "the same size for the same letter",
        "check the order of the letters against the shapes");
  }
  a = sum_unneeded(a, parts.a, parts.b + parts.result);
  b = sum_unneeded(b, parts.b, parts.a + parts.result);
  DotDims dims;
  std::string batch, free_a, free_b;
  for (std::size_t i = 0; i < parts.a.size(); ++i) {
    const std::size_t k = parts.b.find(parts.a[i]);
    const bool is_kept = parts.result.find(parts.a[i]) != std::string::npos;
    if (k == std::string::npos) {
      free_a += parts.a[i];
      continue;
    }
    (is_kept ? dims.batch_a : dims.contract_a).push_back(static_cast<std::int64_t>(i));
    (is_kept ? dims.batch_b : dims.contract_b).push_back(static_cast<std::int64_t>(k));
    if (is_kept) batch += parts.a[i];
  }
  for (char letter : parts.b) {
    if (parts.a.find(letter) == std::string::npos) free_b += letter;
  }
  return ordered(contract("einsum", a, b, dims), batch + free_a + free_b, parts.result);
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

Array einsum(std::string_view text, Operand a, Operand b) {
  return public_op(
      a.where, [&] { return einsum_of_two(text, as_array("einsum", a), as_array("einsum", b)); });
}

Array einsum(std::string_view text, Operand a) {
  return public_op(a.where, [&] {
    const Array x = as_array("einsum", a);
    EinsumText parts = parse({text, detail::describe(x)}, x.rank(), -1);
    const Array reduced = sum_unneeded(x, parts.a, parts.result);
    return ordered(reduced, parts.a, parts.result);
  });
}

}  // namespace tessera
