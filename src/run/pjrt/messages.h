// The protocol buffers that plugins take, written by hand: there are few fields.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera::run::pjrt {

/// A CompileOptionsProto for replicas on the devices with these ids.
std::string compile_options(const std::vector<int>& device_ids, std::string_view platform);

}  // namespace tessera::run::pjrt
