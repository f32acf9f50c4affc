// A transport between processes of one machine, over stream sockets.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "run/transport/transport.h"

namespace tessera::run {

struct SocketOptions {
  int rank = 0;
  int devices_per_group = 1;
  std::vector<int> sockets;  // Per rank, connected to it; -1 for this one. The transport owns them.
  /// A process that is waited for must send or receive something within this time.
  std::chrono::milliseconds timeout;
};

std::unique_ptr<Transport> make_socket_transport(SocketOptions options);

}  // namespace tessera::run
