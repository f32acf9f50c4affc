#include "tests/peers/golden.h"

#include <fstream>
#include <stdexcept>

#include "tests/cases/source_dir.h"

namespace tessera {

nlohmann::json read_golden(const std::string& name) {
  const std::string path = source_dir() / "tests/peers/golden" / name;
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  return nlohmann::json::parse(file);
}

const nlohmann::json& data_golden() {
  static const nlohmann::json file = read_golden("data.json");
  return file;
}

}  // namespace tessera
