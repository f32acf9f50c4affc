// A shared library that is no plugin.
extern "C" int tessera_no_plugin();
extern "C" int tessera_no_plugin() { return 0; }
