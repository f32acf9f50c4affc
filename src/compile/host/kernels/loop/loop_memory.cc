#include "compile/host/kernels/loop/loop_memory.h"

#include <cstdint>

#include "compile/host/kernels/tile/tile_program_chain.h"
#include "compile/host/kernels/tile/tile_program_internal.h"

namespace tessera::kernels::loops {

namespace {

/// Per register: whether a long chain reads its one element.
std::vector<bool> read_by_long_chains(const LoopProgram& program, const Order& order) {
  std::vector<bool> is_read(program.registers.size(), false);
  order.for_each([&](const Group& group, const LoopProgram::Step& step) {
    if (group.blocks.kernels == nullptr || group.blocks.kernels->form.is_short) return;
    for (const int reg : step.inputs) is_read[at(reg)] = true;
  });
  return is_read;
}

}  // namespace

void Home::fill(const std::byte* from) const {
  if (repeats != nullptr) {
    repeats->repeat(dtype, from, data);
  } else {
    tiles::copy_bytes(data, from, bytes());
  }
}

void Copy::run(std::byte* to) const {
  if (count == 1) {
    tiles::copy_bytes(to + offset, from, bytes);
  } else {
    tiles::fill(bytes, from, to + offset, static_cast<std::int64_t>(count));
  }
}

Memory::Memory(const LoopProgram& program, const Order& order) {
  const std::vector<bool> is_in_long = read_by_long_chains(program, order);
  for (std::size_t reg = 0; reg < program.registers.size(); ++reg) {
    const auto& [dtype, size, is_in_place] = program.registers[reg];
    dtypes_.push_back(dtype);
    if (is_in_place) {
      homes_.push_back({.data = nullptr, .dtype = dtype, .size = static_cast<std::size_t>(size)});
      continue;
    }
    homes_.push_back(add(dtype, static_cast<std::size_t>(size)));
    Home& home = homes_.back();
    if (home.repeats == nullptr || !is_in_long[reg]) continue;
    home.repeats = &chain_kernels({.is_wide = is_wide(dtype)});
    home.data = add_bytes(home.repeats->block * home.element_bytes());
  }
}

Home Memory::add(DType dtype, std::size_t size) {
  const Blocks blocks = blocks_of(size, is_wide(dtype));
  return {.data = add_bytes(tiles::padded_size(size) * size_bytes(dtype)),
          .dtype = dtype,
          .size = size,
          .repeats = size == 1 && is_chained(dtype) ? blocks.kernels : nullptr};
}

std::byte* Memory::add_bytes(std::size_t bytes) {
  lines_.push_back(std::make_unique<Line[]>((bytes + sizeof(Line) - 1) / sizeof(Line)));
  return lines_.back()[0].bytes;
}

std::vector<Copy> Memory::copies_of(const LoopProgram::Elements& elements) const {
  std::vector<Copy> copies;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const Home& home = homes_[at(elements[i].reg)];
    const std::size_t bytes = home.element_bytes();
    const std::byte* from = home.data + static_cast<std::size_t>(elements[i].index) * bytes;
    Copy* last = copies.empty() ? nullptr : &copies.back();
    if (last != nullptr && last->count == 1 && last->from + last->bytes == from) {
      last->bytes += bytes;
    } else if (last != nullptr && last->bytes == bytes && last->from == from) {
      last->count += 1;
    } else {
      copies.push_back({.from = from, .offset = i * bytes, .bytes = bytes});
    }
  }
  return copies;
}

}  // namespace tessera::kernels::loops
