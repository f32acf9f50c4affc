// A transport between processes of one machine, over stream sockets.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "run/transport.h"

namespace tessera::run {

struct SocketOptions {
  int rank = 0;
  int devices_per_group = 1;
  std::vector<int> sockets;  // per rank, connected to it; -1 for this one. Owned from here on.
  /// Within this time a process that is waited for must send or take something.
  std::chrono::milliseconds timeout;
};

std::unique_ptr<Transport> make_socket_transport(SocketOptions options);

}  // namespace tessera::run
