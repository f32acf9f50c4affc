// The protocol buffers that plugins take, written by hand: there are few fields.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera::run::pjrt {

/// A CompileOptionsProto for replicas on the devices with these ids. `cuda_folder`: where a
/// compiler for GPUs finds its tools; empty if it is not known.
std::string compile_options(const std::vector<int>& device_ids, std::string_view platform,
                            const std::string& cuda_folder);
/// ProfileOptions: everything that devices do, and the programs.
std::string profile_options();

}  // namespace tessera::run::pjrt
