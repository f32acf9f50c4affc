// A link between processes of one machine.
#pragma once

#include <memory>
#include <vector>

#include "run/transport/link.h"

namespace tessera::run {

/// The open files of one rank, which its link owns.
struct SocketFiles {
  std::vector<int> sockets;    // per rank, connected to it; -1 for this one
  std::vector<int> mailboxes;  // per rank, the write end of its mailbox; -1 for this one
  int mailbox = -1;            // the read end of this rank's mailbox
};

std::unique_ptr<Link> make_socket_link(int rank, SocketFiles files);

}  // namespace tessera::run
