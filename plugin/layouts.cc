#include "plugin/layouts.h"

#include <map>
#include <mutex>
#include <string>

#include "plugin/buffer.h"
#include "plugin/call.h"
#include "plugin/program.h"

namespace tessera::run::pjrt::abi {

/// `text` lists the dimensions from minor to major: {1,0}.
struct HeldLayout {
  std::string text;
};

}  // namespace tessera::run::pjrt::abi

namespace tessera::plugin {

namespace {

// The caller always calls this function, although there is nothing to free.
void free_nothing(void* /*owner*/) {}

void text(abi::TextOfLayout& a) {
  set_text(a, a.layout->text);
  a.owner = nullptr;
  a.free_owner = free_nothing;
}

template <typename Object>
void default_layout(abi::DefaultLayout<Object>& a) {
  a.layout = row_major_layout(a.num_dims);
}

void of_buffer(abi::LayoutOfBuffer& a) { a.layout = row_major_layout(a.buffer->dims.size()); }

void of_arguments(abi::LayoutsOfProgram& a) { set_list(a, a.compiled->held->argument_layouts); }
void of_results(abi::LayoutsOfProgram& a) { set_list(a, a.compiled->held->result_layouts); }

}  // namespace

const abi::HeldLayout* row_major_layout(std::size_t rank) {
  static std::mutex mutex;
  static std::map<std::size_t, abi::HeldLayout> layouts;
  const std::lock_guard lock(mutex);
  abi::HeldLayout& layout = layouts[rank];
  if (layout.text.empty()) {
    for (std::size_t dim = rank; dim-- > 0;) {
      layout.text += (layout.text.empty() ? "{" : ",") + std::to_string(dim);
    }
    layout.text += rank == 0 ? "{}" : "}";
  }
  return &layout;
}

abi::LayoutsExtension layouts_extension() {
  return {.destroy = guarded<abi::HeldLayoutDestroy, ignore>,
          .text = guarded<abi::TextOfLayout, text>,
          .of_client = guarded<abi::DefaultLayout<abi::Client>, default_layout>,
          .of_buffer = guarded<abi::LayoutOfBuffer, of_buffer>,
          .of_topology = guarded<abi::DefaultLayout<abi::Topology>, default_layout>,
          .of_results = guarded<abi::LayoutsOfProgram, of_results>,
          .of_arguments = guarded<abi::LayoutsOfProgram, of_arguments>};
}

}  // namespace tessera::plugin
