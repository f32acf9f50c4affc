#include "compile/host/dense/window_classes.h"

#include <map>

namespace tessera::compile::host {

std::vector<WindowClass> classes_of(const SpaceDim& dim) {
  std::map<std::vector<std::int64_t>, WindowClass> classes;
  for (std::int64_t p = 0; p < dim.windows; ++p) {
    std::vector<std::int64_t> elements;
    for (std::int64_t q = 0; q < dim.size; ++q) {
      if (dim.row(p, q)) elements.push_back(q);
    }
    WindowClass& same = classes[elements];
    same.windows.push_back(p);
    same.rows.push_back(elements.empty() ? 0 : *dim.row(p, elements[0]));
    for (std::size_t i = same.steps.size(); i < elements.size(); ++i)
      same.steps.push_back(*dim.row(p, elements[i]) - same.rows.back());
    same.elements = std::move(elements);
  }
  std::vector<WindowClass> list;
  for (auto& [elements, windows] : classes) list.push_back(std::move(windows));
  return list;
}

}  // namespace tessera::compile::host
