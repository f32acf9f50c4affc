// A program of the reference engine, with the interface of compiled programs.
#pragma once

#include <functional>
#include <vector>

#include "base/dot_unit.h"
#include "ir/ir.h"
#include "run/devices/backend.h"
#include "run/tiles/tiled.h"

namespace tessera::compile {

/// Gathers the inputs, interprets the traced function, and cuts the outputs into tiles. With
/// several processes, each of them does all of this.
class ReferenceRunnable final : public run::Runnable {
 public:
  ReferenceRunnable(ir::Function traced, std::vector<run::PlacementPtr> inputs,
                    std::vector<run::PlacementPtr> outputs, DotUnit dot_unit)
      : traced_(std::move(traced)),
        inputs_(std::move(inputs)),
        outputs_(std::move(outputs)),
        dot_unit_(dot_unit) {}

  std::vector<run::Tiles> execute(std::vector<run::Tiles>& inputs,
                                  const std::function<void()>& on_begin) const override;

 private:
  ir::Function traced_;
  std::vector<run::PlacementPtr> inputs_;
  std::vector<run::PlacementPtr> outputs_;
  DotUnit dot_unit_;
};

}  // namespace tessera::compile
