#include "tests/fuzz/program.h"

#include <algorithm>
#include <cmath>

#include "compile/reference/interpret.h"

namespace tessera::fuzz {

namespace {

/// Whether at least half of the elements are finite, so that wrong bits would be seen.
bool is_alive(const ops::HostArray& array) {
  const auto has_finite = [](const auto elements) {
    const auto finite = std::count_if(elements.begin(), elements.end(), [](float x) {
      return std::isfinite(x) && std::fabs(x) < 1e30f;
    });
    return 2 * finite >= static_cast<std::ptrdiff_t>(elements.size());
  };
  if (array.type().dtype == DType::f16) return has_finite(array.data<float16>());
  if (array.type().dtype == DType::bf16) return has_finite(array.data<bfloat16>());
  return array.type().dtype != DType::f32 || has_finite(array.data<float>());
}

}  // namespace

Program::Program(Mesh mesh, std::int64_t grains, testing::Values values, Random& random)
    : random_(random), values_(values) {
  function_.mesh = std::move(mesh);
  function_.grains = grains;
}

Program::Program(Program* outer)
    : random_(outer->random_),
      values_(outer->values_),
      max_elements_(outer->max_elements_),
      axis_(outer->axis_),
      depth_(outer->depth_ + 1) {
  function_.name = "body";
  function_.mesh = outer->function_.mesh;
  function_.grains = outer->function_.grains;
}

testing::Arrays Program::inputs() const {
  testing::Arrays arrays;
  for (ValueId id : function_.inputs) arrays.push_back(data_[id]);
  return arrays;
}

std::int64_t Program::size() {
  static const std::vector<std::int64_t> sizes = {1, 1,  2,  2,  3,  3,  4,  4,  5,  6,  7,  8,
                                                  8, 10, 12, 13, 16, 16, 24, 24, 32, 33, 48, 65};
  static const std::vector<std::int64_t> large_sizes = {1, 3, 8, 24, 65, 100, 128, 257, 300};
  if (random_.pick(60) == 0) return 0;
  return random_.choose(has_grown() ? large_sizes : sizes);
}

Shape Program::shape_of_rank(std::int64_t rank) {
  while (true) {
    Shape shape;
    for (std::int64_t i = 0; i < rank; ++i) shape.push_back(size());
    if (num_elements(shape) <= max_elements_ / 3) return shape;
  }
}

Shape Program::any_shape() {
  static const std::vector<std::int64_t> ranks = {0, 1, 1, 2, 2, 2, 2, 3, 3, 3, 4};
  return shape_of_rank(random_.choose(ranks));
}

void Program::keep(ValueId id, ops::HostArray data) {
  if (data_.size() <= id) data_.resize(id + 1);
  if (is_alive(data)) pool_.push_back(id);
  data_[id] = std::move(data);
}

ValueId Program::add_input(const ops::SampleOperand& operand) {
  ops::HostArray data = testing::random_array(random_.generator(), operand, values_);
  // Sometimes coarse values, to get ties for max, argmax and sort.
  if (operand.type.dtype == DType::f32 && random_.chance(20)) {
    for (float& x : data.data<float>()) x = std::round(x * 2) / 2;
  }
  const ValueId id = b_.add_input(operand.type);
  drawn_from_.push_back(operand);
  keep(id, std::move(data));
  return id;
}

ValueId Program::add_input(ops::HostArray data) {
  const ValueId id = b_.add_input(data.type());
  drawn_from_.push_back({.type = data.type()});
  keep(id, std::move(data));
  return id;
}

ValueId Program::recent(const std::function<bool(const Type&)>& fits) {
  std::vector<ValueId> found;
  for (ValueId id : pool_) {
    if (fits(type(id))) found.push_back(id);
  }
  if (found.empty()) return ir::kNoValue;
  const std::size_t window =
      random_.chance(70) ? std::min<std::size_t>(found.size(), 3) : found.size();
  return found[found.size() - 1 - random_.pick(window)];
}

ValueId Program::any(DType dtype, std::int64_t min_rank) {
  const ValueId old =
      recent([&](const Type& type) { return type.dtype == dtype && type.rank() >= min_rank; });
  if (old != ir::kNoValue && random_.chance(95)) return old;
  const Shape shape = any_shape();
  const auto rank = static_cast<std::int64_t>(shape.size());
  return of_type({dtype, rank < min_rank ? shape_of_rank(min_rank) : shape});
}

ValueId Program::any(std::int64_t min_rank) {
  static const std::vector<DType> dtypes = {DType::f32,     DType::f32,  DType::f32, DType::f32,
                                            DType::f32,     DType::f32,  DType::i32, DType::u32,
                                            DType::boolean, DType::bf16, DType::bf16};
  static const std::vector<DType> others = {DType::i8,  DType::i16, DType::i64, DType::u8,
                                            DType::u16, DType::u64, DType::f16, DType::f64};
  return any(random_.choose(random_.chance(15) ? others : dtypes), min_rank);
}

ValueId Program::like(const ops::SampleOperand& operand) {
  const ValueId old = recent([&](const Type& type) { return type == operand.type; });
  if (old != ir::kNoValue && random_.chance(60)) return old;
  if (random_.chance(12)) {
    static const std::vector<double> numbers = {0.0, -0.0, 1.0, 0.5, -1.5, 3.0};
    return emit_anyway("constant",
                       {{"dtype", operand.type.dtype},
                        {"shape", operand.type.shape},
                        {"value", random_.choose(numbers)}},
                       {})
        .at(0);
  }
  // A row that is broadcast, like a bias.
  if (operand.type.rank() > 1 && random_.chance(25)) {
    const std::int64_t dim = random_.between(0, operand.type.rank() - 1);
    const Shape row = {operand.type.shape[static_cast<std::size_t>(dim)]};
    ops::SampleOperand small = operand;
    small.type.shape = row;
    const std::vector<ValueId> wide =
        emit("broadcast_in_dim", {{"dims", Ints{dim}}, {"shape", operand.type.shape}},
             {add_input(small)});
    if (!wide.empty()) return wide[0];
  }
  return add_input(operand);
}

std::vector<ValueId> Program::emit(std::string_view op, ir::Attributes attributes,
                                   std::vector<ValueId> operands) {
  std::vector<Type> types;
  for (ValueId id : operands) types.push_back(type(id));
  const std::vector<Type> results = ir::infer_types(ir::op_named(op), attributes, types, {});
  for (const Type& result : results) {
    if (num_elements(result.shape) > max_elements_ || result.rank() > 6) return {};
  }
  return emit_anyway(op, std::move(attributes), std::move(operands));
}

std::vector<ValueId> Program::emit_anyway(std::string_view op, ir::Attributes attributes,
                                          std::vector<ValueId> operands) {
  std::vector<Type> types;
  for (ValueId id : operands) types.push_back(type(id));
  const std::vector<Type> results = ir::infer_types(ir::op_named(op), attributes, types, {});
  std::vector<const ops::HostArray*> arrays;
  for (ValueId id : operands) arrays.push_back(&data_[id]);
  const std::function<std::vector<ops::HostArray>(const ir::Function&, std::vector<ops::HostArray>)>
      call = [](const ir::Function& body, std::vector<ops::HostArray> inputs) {
        return compile::interpret(body, std::move(inputs));
      };
  std::vector<ops::HostArray> data = ops::evaluate(ir::op_named(op), {.attributes = attributes,
                                                                      .operands = arrays,
                                                                      .results = results,
                                                                      .grains = function_.grains,
                                                                      .call = call});
  b_.set_span({"fuzz.cc", static_cast<std::uint32_t>(function_.equations.size() + 1)});
  const std::vector<ValueId> ids = b_.emit_all(op, std::move(attributes), std::move(operands));
  for (std::size_t i = 0; i < ids.size(); ++i) keep(ids[i], std::move(data[i]));
  return ids;
}

Sharding random_sharding(Random& random, const Mesh& mesh, const Shape& shape) {
  Sharding sharding = replicated_sharding(static_cast<std::int64_t>(shape.size()));
  if (shape.empty()) return sharding;
  const bool may_be_empty = random.chance(20);
  const bool by_parts = random.chance(15);
  const std::vector<Atom> atoms = atoms_of(mesh);
  std::vector<AtomList> units;
  for (std::size_t i = 0; i < atoms.size(); ++i) {
    const bool is_new = i == 0 || by_parts || atoms[i].axis != atoms[i - 1].axis;
    if (is_new) units.emplace_back();
    units.back().push_back(static_cast<AtomId>(i));
  }
  random.shuffle(units);
  for (const AtomList& unit : units) {
    if (random.chance(30)) continue;
    const std::size_t dim = random.pick(shape.size());
    AtomList list = sharding.dims[dim];
    list.insert(list.end(), unit.begin(), unit.end());
    if (num_shards(atoms, list) <= shape[dim] || may_be_empty) sharding.dims[dim] = list;
  }
  return sharding;
}

}  // namespace tessera::fuzz
