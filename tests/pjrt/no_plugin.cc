// A shared library that is not a plugin.
extern "C" int tessera_no_plugin();
extern "C" int tessera_no_plugin() { return 0; }
