#include "compile/host/kernels/boxes.h"

#include <algorithm>
#include <gtest/gtest.h>

#include <tessera/error.h>

#include "base/leaf_tree.h"
#include "compile/host/kernels/on_every_target.h"
#include "compile/host/kernels/test_values.h"

namespace tessera::kernels {
namespace {

using testing::at;
using testing::Random;
using testing::random_values;
using testing::same_bits;
using Sizes = std::vector<std::int64_t>;

/// Copies random bytes between the layouts and checks every byte of the target.
void check_copy(Random& random, const Shape& extents, const testing::Layout& from,
                const testing::Layout& to, std::size_t bytes) {
  std::vector<std::byte> source(at(from.size) * bytes);
  std::vector<std::byte> found(at(to.size) * bytes);
  for (std::byte& x : source) x = static_cast<std::byte>(random.integer(0, 255));
  for (std::byte& x : found) x = static_cast<std::byte>(random.integer(0, 255));
  std::vector<std::byte> wanted = found;
  testing::for_each_index(extents, [&](const Sizes& index) {
    std::memcpy(wanted.data() + at(to.offset + testing::dot(index, to.strides)) * bytes,
                source.data() + at(from.offset + testing::dot(index, from.strides)) * bytes, bytes);
  });
  copy_box(source.data() + at(from.offset) * bytes, from.strides,
           found.data() + at(to.offset) * bytes, to.strides, extents, bytes);
  ASSERT_TRUE(found == wanted) << to_string(extents) << " from " << to_string(from.strides)
                               << " to " << to_string(to.strides);
}

TEST(CopyBox, MovesTheBoxAndNothingElse) {
  Random random;
  for (int i = 0; i < 1500; ++i) {
    Shape extents;
    for (std::int64_t d = random.integer(0, 4); d > 0; --d) {
      extents.push_back(random.integer(random.one_in(20) ? 0 : 1, 6));
    }
    const std::size_t bytes = std::vector<std::size_t>{1, 2, 4, 8}[at(random.integer(0, 3))];
    const testing::Layout from = testing::random_layout(random, extents, true);
    check_copy(random, extents, from, testing::random_layout(random, extents, false), bytes);
  }
}

TEST(CopyBox, TransposesMatrices) {
  testing::on_every_target([](const char* /*name*/) {
    Random random;
    for (std::size_t bytes : {1U, 2U, 4U, 8U}) {
      for (std::int64_t rows : {2, 7, 8, 16, 33, 35, 600}) {
        for (std::int64_t columns : {2, 8, 9, 17, 33, 530}) {
          const Shape extents = {2, rows, columns};
          const std::int64_t line = rows + random.integer(0, 3);  // between columns of the source
          const std::int64_t row = columns + random.integer(0, 3);
          const testing::Layout from{{columns * line, 1, line}, 2, 2 + 2 * columns * line};
          const testing::Layout to{{rows * row, row, 1}, 1, 1 + 2 * rows * row};
          check_copy(random, extents, from, to, bytes);
        }
      }
    }
  });
}

TEST(Combine, NamesOfReductions) {
  EXPECT_EQ(combine_kind("sum"), ReduceKind::sum);
  EXPECT_EQ(combine_kind("max"), ReduceKind::max);
  EXPECT_EQ(combine_kind("min"), ReduceKind::min);
  EXPECT_EQ(combine_kind("and"), ReduceKind::all);
  EXPECT_EQ(combine_kind("or"), ReduceKind::any);
  EXPECT_EQ(combine_kind("bit_or"), ReduceKind::bits);
  EXPECT_THROW(combine_kind("mean"), InternalError);
}

template <typename T>
T naive_combine(ReduceKind kind, std::span<const T> terms) {
  return testing::naive_tree(terms, [&](T x, T y) {
    if (kind == ReduceKind::sum) return testing::naive_add(x, y);
    if (kind == ReduceKind::all) return static_cast<T>(x != 0 && y != 0);
    if (kind == ReduceKind::any) return static_cast<T>(x != 0 || y != 0);
    if (kind == ReduceKind::bits) return testing::naive_or(x, y);
    return testing::naive_extreme(x, y, kind == ReduceKind::min);
  });
}

/// Sources with separate layouts, in separate buffers.
template <typename T>
struct Sources {
  CombineProblem problem;
  std::vector<std::vector<T>> buffers;

  Sources(Random& random, ReduceKind kind, Shape extents, std::int64_t count, bool is_dense) {
    problem.kind = kind;
    problem.dtype = testing::dtype_of<T>();
    problem.extents = std::move(extents);
    for (std::int64_t s = 0; s < count; ++s) {
      testing::Layout layout = testing::random_layout(random, problem.extents, true);
      if (is_dense) layout = {row_major_strides(problem.extents), 3, 3};
      if (is_dense) layout.size += num_elements(problem.extents);
      problem.sources.push_back({.offset = layout.offset, .strides = layout.strides});
      buffers.push_back(random_values<T>(random, at(layout.size), random.one_in(3)));
    }
  }

  std::vector<T> wanted() const {
    std::vector<T> result;
    testing::for_each_index(problem.extents, [&](const Sizes& index) {
      std::vector<T> terms;
      for (std::size_t s = 0; s < buffers.size(); ++s) {
        const auto& source = problem.sources[s];
        terms.push_back(buffers[s][at(source.offset + testing::dot(index, source.strides))]);
      }
      result.push_back(naive_combine(problem.kind, std::span<const T>(terms)));
    });
    return result;
  }

  std::vector<T> found(int* num_parts = nullptr) {
    std::vector<std::byte*> pointers;
    for (auto& buffer : buffers) pointers.push_back(reinterpret_cast<std::byte*>(buffer.data()));
    const auto count = at(num_elements(problem.extents));
    std::vector<T> result(count + 8, T{77});
    const CombinePlan plan(problem, 4);
    for (int part = plan.num_parts(); part-- > 0;) {
      plan.run(pointers, reinterpret_cast<std::byte*>(result.data()), part);
    }
    for (std::size_t i = count; i < result.size(); ++i) EXPECT_EQ(result[i], T{77});
    result.resize(count);
    if (num_parts != nullptr) *num_parts = plan.num_parts();
    return result;
  }
};

/// Replaces random runs of the sources by their reductions.
template <typename T>
Sources<T> with_nodes(Random& random, const Sources<T>& leaves) {
  Sources<T> nodes = leaves;
  nodes.problem.sources.clear();
  nodes.buffers.clear();
  const std::int64_t count = std::ssize(leaves.buffers);
  for (std::int64_t first = 0, last = 0; first < count; first = last) {
    last = random.integer(first + 1, count);
    std::int64_t at = first;
    for (const std::int64_t size : subtrees_within(first, last, count)) {
      Sources<T> node = leaves;
      const auto cut = [&](auto& list) {
        list.erase(list.begin() + at + size, list.end());
        list.erase(list.begin(), list.begin() + at);
      };
      cut(node.problem.sources);
      cut(node.buffers);
      nodes.buffers.push_back(node.found());
      nodes.problem.sources.push_back(
          {.offset = 0, .strides = row_major_strides(leaves.problem.extents), .num_leaves = size});
      at += size;
    }
    EXPECT_EQ(at, last);
  }
  return nodes;
}

template <typename T>
void check_combine(const std::vector<ReduceKind>& kinds) {
  Random random;
  for (ReduceKind kind : kinds) {
    for (std::int64_t count = 1; count <= 9; ++count) {
      for (int i = 0; i < 12; ++i) {
        Shape extents;
        for (std::int64_t d = random.integer(0, 3); d > 0; --d) {
          extents.push_back(random.integer(random.one_in(20) ? 0 : 1, 9));
        }
        Sources<T> sources(random, kind, extents, count, random.one_in(3));
        const std::vector<T> found = sources.found();
        ASSERT_TRUE(same_bits(found, sources.wanted()))
            << count << " sources of " << to_string(extents);
        ASSERT_TRUE(same_bits(with_nodes(random, sources).found(), found))
            << "subtrees of " << count << " sources of " << to_string(extents);
      }
    }
  }
}

TEST(Combine, FollowsTheTreeForEveryKindAndType) {
  const std::vector<ReduceKind> numbers = {ReduceKind::sum, ReduceKind::max, ReduceKind::min,
                                           ReduceKind::bits};
  check_combine<float>(numbers);
  check_combine<double>(numbers);
  check_combine<std::int32_t>(numbers);
  check_combine<std::uint32_t>(numbers);
  check_combine<std::uint8_t>({ReduceKind::all, ReduceKind::any, ReduceKind::bits});
}

TEST(Combine, PartsAndBlocksChangeNothing) {
  Random random;
  std::vector<int> parts;
  for (const Shape& extents :
       {Shape{2 * 32768}, Shape{32768 + 1}, Shape{3, 5000}, Shape{40, 1025}, Shape{7, 2, 1024}}) {
    for (std::int64_t count : {2, 3, 8}) {
      for (bool is_dense : {true, false}) {
        Sources<float> sources(random, ReduceKind::sum, extents, count, is_dense);
        parts.push_back(0);
        ASSERT_TRUE(same_bits(sources.found(&parts.back()), sources.wanted()))
            << to_string(extents);
      }
    }
  }
  EXPECT_GT(*std::max_element(parts.begin(), parts.end()), 4);
}

}  // namespace
}  // namespace tessera::kernels
