// What a program is compiled for.
#pragma once

namespace tessera::run {

class Transport;

struct Target {
  /// Threads that compute. Tasks are cut into parts for them; results do not depend on it.
  int num_workers = 1;
  /// If set, the program computes what the device of this rank computes, and collectives use the
  /// transport, which must outlive the program. nullptr: the process computes for all devices.
  Transport* transport = nullptr;
};

}  // namespace tessera::run
