// Which processor a shared library is for.
#pragma once

#include <string>

namespace tessera::run {

/// The processor that a shared library is for, if it is not that of this process; empty otherwise,
/// and for any other file.
std::string other_machine(const std::string& path);
/// The processor that this process is compiled for, such as x86-64.
std::string own_machine();

}  // namespace tessera::run
