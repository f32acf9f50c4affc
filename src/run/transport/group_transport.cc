#include "run/transport/group_transport.h"

#include <vector>

namespace tessera::run {

void GroupTransport::exchange(std::span<const Send> sends, std::span<const Receive> receives) {
  std::vector<Send> all_sends(sends.begin(), sends.end());
  std::vector<Receive> all_receives(receives.begin(), receives.end());
  for (Send& send : all_sends) send.to += first_;
  for (Receive& receive : all_receives) receive.from += first_;
  all_.exchange(all_sends, all_receives);
}

}  // namespace tessera::run
