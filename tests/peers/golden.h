// Numbers recorded from the peers, for tests only.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tessera {

/// The content of tests/peers/golden/`name`; throws when it cannot be read.
nlohmann::json read_golden(const std::string& name);

/// Files of data sets, and what the peers read from them: data.json.
const nlohmann::json& data_golden();

}  // namespace tessera
