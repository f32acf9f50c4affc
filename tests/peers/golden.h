// Numbers recorded from the peers, for tests only.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "tests/cases/source_dir.h"

namespace tessera {

/// The content of tests/peers/golden/`name`; throws when it cannot be read.
inline nlohmann::json read_golden(const std::string& name) {
  const std::string path = source_dir() / "tests/peers/golden" / name;
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  return nlohmann::json::parse(file);
}

/// Files of data sets, and what the peers read from them: data.json.
inline const nlohmann::json& data_golden() {
  static const nlohmann::json file = read_golden("data.json");
  return file;
}

}  // namespace tessera
