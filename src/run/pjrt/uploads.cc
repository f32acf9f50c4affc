#include "run/pjrt/uploads.h"

#include <vector>

#include "run/pjrt/abi_programs.h"

namespace tessera::run::pjrt {

namespace {

bool is_ready(const Plugin& plugin, abi::Event* event) {
  abi::EventIsReady ask;
  ask.event = event;
  return plugin.try_call(ask).has_value() || ask.is_ready;
}

}  // namespace

void Uploads::add(abi::Event* read, std::shared_ptr<const void> owner) {
  const std::lock_guard<std::mutex> lock(mutex_);
  under_way_.push_back({read, std::move(owner)});
}

void Uploads::let_go(const Plugin& plugin) {
  std::vector<Upload> ended;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    while (!under_way_.empty() && is_ready(plugin, under_way_.front().read)) {
      ended.push_back(std::move(under_way_.front()));
      under_way_.pop_front();
    }
  }
  // A failed upload is reported when the array is read.
  for (const Upload& upload : ended) plugin.await(upload.read);
}

}  // namespace tessera::run::pjrt
