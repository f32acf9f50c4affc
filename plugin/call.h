// Puts functions into the plugin's function table.
#pragma once

#include <string_view>

#include "plugin/failure.h"
#include "run/pjrt/abi_plugin.h"

namespace tessera::plugin {

/// Calls `body` and turns what it throws into an error.
template <typename Arguments, void (*body)(Arguments&)>
abi::Error* guarded(void* arguments) {
  try {
    body(*static_cast<Arguments*>(arguments));
    return nullptr;
  } catch (...) {
    return error_of(current_failure());
  }
}

/// Puts a function into the table. The type of its argument says which entry it is.
template <typename Arguments, void (*body)(Arguments&)>
void enter(abi::PluginApi& api) {
  api.functions[static_cast<std::size_t>(Arguments::kFunction)] = guarded<Arguments, body>;
}

template <typename Arguments>
void set_text(Arguments& arguments, std::string_view text) {
  arguments.text = text.data();
  arguments.text_size = text.size();
}

template <typename Arguments, typename List>
void set_list(Arguments& arguments, const List& list) {
  arguments.items = list.data();
  arguments.num_items = list.size();
}

/// A function that does nothing.
template <typename Arguments>
void ignore(Arguments& /*arguments*/) {}

}  // namespace tessera::plugin
