// Partitioning does not change what programs mean: random programs run tile by tile with the
// reference of each op, and give the same bits as with whole arrays. Elements are small integers,
// so the order of summation does not matter here; the engines' tests check exact orders.
#include <gtest/gtest.h>
#include <map>
#include <random>

#include <tessera/error.h>

#include "base/sanitized.h"
#include "ir/text.h"
#include "partition/moves.h"
#include "partition/test_programs.h"

namespace tessera::partition {
namespace {

using ir::Equation;
using ir::Function;
using ops::HostArray;
using testing::Ints;
using testing::Program;
using testing::ValueId;

using Arrays = std::vector<HostArray>;

Arrays run_reference(const Equation& equation, const std::vector<const HostArray*>& operands,
                     const std::vector<Type>& results) {
  ir::Attributes attributes = equation.attributes;
  if (attributes.has("shape")) attributes.set("shape", results[0].shape);
  const auto no_bodies = [](const ir::Function&, Arrays) -> Arrays {
    throw InternalError("these programs have no nested functions");
  };
  return ops::evaluate(*equation.op, {.attributes = attributes,
                                      .operands = operands,
                                      .results = results,
                                      .grains = 8,
                                      .call = no_bodies});
}

Arrays run_whole(const Function& function, const Arrays& inputs) {
  Arrays values(function.values.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) values[function.inputs[i]] = inputs[i];
  for (const Equation& equation : function.equations) {
    if (equation.op == &ops::sharding_constraint_op) {
      values[equation.results[0]] = values[equation.operands[0]];
      continue;
    }
    std::vector<const HostArray*> operands;
    for (ValueId id : equation.operands) operands.push_back(&values[id]);
    Arrays results = run_reference(equation, operands, result_types(function, equation));
    for (std::size_t i = 0; i < results.size(); ++i) {
      values[equation.results[i]] = std::move(results[i]);
    }
  }
  Arrays outputs;
  for (ValueId id : function.outputs) outputs.push_back(values[id]);
  return outputs;
}

/// Calls visit(index in the whole array, index in the box) for every element of a box.
template <typename Visit>
void for_each(const Box& box, const Shape& whole, Visit visit) {
  const std::vector<std::int64_t> strides = row_major_strides(whole);
  const std::int64_t count = num_elements(box.size);
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t rest = i;
    std::int64_t index = 0;
    for (std::size_t dim = whole.size(); dim-- > 0;) {
      index += (box.start[dim] + rest % box.size[dim]) * strides[dim];
      rest /= box.size[dim];
    }
    visit(static_cast<std::size_t>(index), static_cast<std::size_t>(i));
  }
}

HostArray cut(const HostArray& whole, const Box& box) {
  HostArray tile(Type{whole.type().dtype, box.size});
  for_each(box, whole.type().shape, [&](std::size_t from, std::size_t to) {
    tile.data<double>()[to] = whole.data<double>()[from];
  });
  return tile;
}

/// Runs a partitioned function with one array per tile of each value.
class Simulator {
 public:
  explicit Simulator(const Function& function)
      : function_(function), tiles_(function.values.size()) {}

  Arrays run(const Arrays& inputs) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      spread(function_.inputs[i], {{Ints{}, inputs[i]}});
    }
    for (const Equation& equation : function_.equations) {
      if (const auto kind = kind_of(*equation.op)) {
        for (std::size_t i = 0; i < equation.operands.size(); ++i) {
          move(equation, equation.operands[i], equation.results[i], is_reducing(*kind));
        }
      } else {
        compute(equation);
      }
    }
    Arrays outputs;
    for (ValueId id : function_.outputs) outputs.push_back(gathered(id).begin()->second);
    return outputs;
  }

 private:
  // The whole array for each combination of digits of the partial atoms.
  using Wholes = std::map<Ints, HostArray>;

  Layout layout(ValueId id) const {
    return Layout(function_.mesh, function_.sharding(id), function_.type(id).shape);
  }
  static Ints partial_digits(const AtomDigits& digits, const AtomList& partial) {
    Ints result;
    for (AtomId atom : partial) result.push_back(digits[atom]);
    return result;
  }

  Wholes gathered(ValueId id) const {
    const Layout where = layout(id);
    Wholes wholes;
    for (std::int64_t tile = 0; tile < where.num_tiles(); ++tile) {
      const Ints key = partial_digits(where.digits(tile), where.sharding().partial);
      HostArray& whole = wholes.try_emplace(key, function_.type(id)).first->second;
      const HostArray& source = tiles_[id][static_cast<std::size_t>(tile)];
      for_each(where.box(tile), where.shape(), [&](std::size_t to, std::size_t from) {
        whole.data<double>()[to] = source.data<double>()[from];
      });
    }
    return wholes;
  }

  void spread(ValueId id, const Wholes& wholes) {
    const Layout where = layout(id);
    for (std::int64_t tile = 0; tile < where.num_tiles(); ++tile) {
      const Ints key = partial_digits(where.digits(tile), where.sharding().partial);
      tiles_[id].push_back(cut(wholes.at(key), where.box(tile)));
    }
  }

  void move(const Equation& equation, ValueId from, ValueId to, bool is_reduction) {
    const AtomList& before = function_.sharding(from).partial;
    const AtomList& after = function_.sharding(to).partial;
    Wholes wholes;
    for (auto& [key, whole] : gathered(from)) {
      Ints rest;
      for (std::size_t i = 0; i < before.size(); ++i) {
        if (std::count(after.begin(), after.end(), before[i]) != 0) rest.push_back(key[i]);
      }
      const auto [place, is_new] = wholes.try_emplace(rest, whole);
      if (is_new) continue;
      ASSERT_TRUE(is_reduction);
      const bool is_sum = equation.attributes.get<std::string>("reduction") == "sum";
      const auto sum = place->second.data<double>();
      for (std::size_t i = 0; i < sum.size(); ++i) {
        const double other = whole.data<double>()[i];
        sum[i] = is_sum ? sum[i] + other : std::max(sum[i], other);
      }
    }
    spread(to, wholes);
  }

  void compute(const Equation& equation) {
    const ValueId result = equation.results[0];
    const Layout where = layout(result);
    if (equation.op == &ops::iota_op) {  // its elements depend on the position of the tile
      return spread(result, {{Ints{}, run_reference(equation, {}, {function_.type(result)})[0]}});
    }
    // The operands use no atoms that the result lacks, so any digit would do for those.
    for (std::int64_t tile = 0; tile < where.num_tiles(); ++tile) {
      const AtomDigits digits = where.digits(tile);
      std::vector<const HostArray*> operands;
      for (ValueId id : equation.operands) {
        operands.push_back(&tiles_[id][static_cast<std::size_t>(layout(id).tile_at(digits))]);
      }
      const Type type{function_.type(result).dtype, where.box(tile).size};
      tiles_[result].push_back(run_reference(equation, operands, {type})[0]);
    }
  }

  const Function& function_;
  std::vector<Arrays> tiles_;
};

/// Random programs over f64 with sizes that rarely divide evenly.
class Generator {
 public:
  Generator(const Mesh& mesh, unsigned seed) : program(mesh), random_(seed) {
    for (int i = 0; i < 2; ++i) add_input({size(), size(), size()});
    for (int i = 0; i < 10; ++i) add_equation();
    std::vector<ValueId> outputs;
    for (int i = 0; i < 3; ++i) {
      outputs.push_back(values_[values_.size() - 1 - pick(values_.size() / 2)]);
      options.outputs.emplace_back();
      if (pick(2) == 0) options.outputs.back() = sharding(shape(outputs.back()).size());
    }
    program.b.set_outputs(outputs);
    options.passes.verify = true;
  }

  Arrays draw_inputs() {
    Arrays inputs;
    for (ValueId id : program.function.inputs) {
      inputs.emplace_back(program.function.type(id));
      for (double& x : inputs.back().data<double>()) x = static_cast<double>(pick(5)) - 2;
    }
    return inputs;
  }

  Program program;
  PartitionOptions options;

 private:
  std::size_t pick(std::size_t count) { return random_() % count; }
  std::int64_t size() {
    constexpr std::int64_t sizes[] = {1, 2, 3, 4, 6, 8, 12, 16, 24};
    return sizes[pick(std::size(sizes))];
  }
  ValueId any() {
    return values_[values_.size() - 1 - pick(std::min<std::size_t>(values_.size(), 5))];
  }
  const Shape& shape(ValueId id) const { return program.function.type(id).shape; }

  Sharding sharding(std::size_t rank) {
    Sharding result = replicated_sharding(static_cast<std::int64_t>(rank));
    const std::size_t count = atoms_of(program.function.mesh).size();
    for (std::size_t atom = 0; atom < count && rank > 0; ++atom) {
      const std::size_t dim = pick(rank + 1);
      if (dim == rank) continue;
      AtomList& list = result.dims[dim];
      list.insert(list.begin() + static_cast<std::ptrdiff_t>(pick(list.size() + 1)),
                  static_cast<AtomId>(atom));
    }
    return result;
  }
  ValueId add_input(Shape of) {
    const std::size_t rank = of.size();
    values_.push_back(program.b.add_input({DType::f64, std::move(of)}));
    options.inputs.push_back(sharding(rank));
    options.is_storage.push_back(pick(2) == 0);
    return values_.back();
  }

  ValueId reshaped(ValueId x) {
    Shape to = shape(x);
    const std::size_t dim = pick(to.size());
    if (dim + 1 < to.size() && pick(2) == 0) {
      to[dim] *= to[dim + 1];
      to.erase(to.begin() + static_cast<std::ptrdiff_t>(dim) + 1);
    } else {
      const std::int64_t part = to[dim] % 2 == 0 ? 2 : to[dim] % 3 == 0 ? 3 : 1;
      to[dim] /= part;
      to.insert(
          to.begin() + static_cast<std::ptrdiff_t>(dim) + static_cast<std::ptrdiff_t>(pick(2)),
          part);
    }
    return program.reshape(x, to);
  }
  ValueId transposed(ValueId x) {
    Ints order;
    for (std::size_t i = 0; i < shape(x).size(); ++i) order.push_back(static_cast<std::int64_t>(i));
    std::shuffle(order.begin(), order.end(), random_);
    return program.transpose(x, order);
  }
  Ints some_dims(ValueId x) {
    Ints dims;
    for (std::size_t i = 0; i < shape(x).size(); ++i) {
      if (pick(2) == 0) dims.push_back(static_cast<std::int64_t>(i));
    }
    std::shuffle(dims.begin(), dims.end(), random_);
    return dims;
  }
  ValueId contracted(ValueId x) {
    const std::size_t dim = pick(shape(x).size());
    const ValueId w = pick(2) == 0 ? x : add_input({shape(x)[dim], size()});
    const std::int64_t other = w == x ? static_cast<std::int64_t>(dim) : 0;
    if (num_elements(shape(x)) > 5000) return program.add(x, x);
    return program.dot(x, w, {static_cast<std::int64_t>(dim)}, {other});
  }
  ValueId repeated(ValueId x) {
    Shape to = shape(x);
    Ints dims;
    const std::size_t place = pick(to.size() + 1);
    for (std::size_t i = 0; i < to.size(); ++i) {
      dims.push_back(static_cast<std::int64_t>(i < place ? i : i + 1));
    }
    to.insert(to.begin() + static_cast<std::ptrdiff_t>(place), size());
    return program.broadcast(x, dims, to);
  }

  /// A sum of two contractions of x's shape, or x minus a value of its shape.
  ValueId linear(ValueId x) {
    if (num_elements(shape(x)) > 5000) return program.sub(x, add_input(shape(x)));
    const std::int64_t common = size();
    const auto product = [&] {
      Shape left = shape(x);
      const std::int64_t last = left.back();
      left.back() = common;
      const auto dim = static_cast<std::int64_t>(left.size()) - 1;
      return program.dot(add_input(left), add_input({common, last}), {dim}, {0});
    };
    const ValueId sum = program.add(product(), product());
    return pick(2) == 0 ? sum : program.sub(x, sum);
  }

  void add_equation() {
    ir::Builder& b = program.b;
    const ValueId x = any();
    const Shape of = shape(x);
    const Type type{DType::f64, of};
    ValueId y = x;
    const bool is_large = num_elements(of) > 5000 || of.size() > 3;
    switch (of.empty() ? 0 : pick(is_large ? 8 : 14)) {
      case 0:
        y = ops::add(b, x, ops::full(b, 3, type));
        break;
      case 1:
        y = ops::sub(b, x, add_input(of));
        break;
      case 2:
        y = transposed(x);
        break;
      case 3:
        y = program.sum(x, some_dims(x));
        break;
      case 4:
        y = program.largest(x, some_dims(x));
        break;
      case 5:
        y = ops::max(b, x,
                     ops::iota(b, DType::f64, of, static_cast<std::int64_t>(pick(of.size()))));
        break;
      case 6: {
        Sharding asked = sharding(of.size());
        for (std::size_t dim = 0; dim < of.size(); ++dim) {
          if (pick(3) == 0) asked.open.push_back(dim);
        }
        y = ops::sharding_constraint(b, x, asked);
        break;
      }
      case 7:
        y = reshaped(x);
        break;
      case 8:
        y = contracted(x);
        break;
      case 9:
        y = repeated(x);
        break;
      case 11:
        y = ops::mul(b, x, ops::full(b, -2, type));
        break;
      case 12:
        y = ops::neg(b, linear(x));
        break;
      case 13:
        y = linear(x);
        break;
      default:
        y = ops::concatenate(b, {x, add_input(of)}, static_cast<std::int64_t>(pick(of.size())));
    }
    values_.push_back(y);
  }

  std::mt19937 random_;
  std::vector<ValueId> values_;
};

/// Fast numerics are tested too: elements are small integers, so sums are exact in any order.
class Simulate : public ::testing::TestWithParam<Numerics> {};

TEST_P(Simulate, RandomProgramsGiveTheSameBits) {
  const Mesh meshes[] = {make_mesh({{"a", 2}, {"b", 4}}), make_mesh({{"a", 8}}),
                         make_mesh({{"a", 3}, {"b", 2}}),
                         make_mesh({{"a", 2}, {"b", 2}, {"c", 2}})};
  for (unsigned seed = 0; seed < num_cases(400); ++seed) {
    const Mesh& mesh = meshes[seed % std::size(meshes)];
    Generator generator(mesh, seed);
    Function& whole = generator.program.function;
    whole.numerics = GetParam();
    const Function tiled = partition(whole, generator.options);
    const Arrays inputs = generator.draw_inputs();
    const Arrays expected = run_whole(whole, inputs);
    const Arrays found = Simulator(tiled).run(inputs);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const auto a = expected[i].data<double>();
      const auto b = found[i].data<double>();
      ASSERT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end()))
          << "seed " << seed << " output " << i << "\n"
          << ir::print(whole) << ir::print(tiled);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(All, Simulate, ::testing::Values(Numerics::exact, Numerics::fast),
                         [](const auto& test) { return std::string(name(test.param)); });

}  // namespace
}  // namespace tessera::partition
