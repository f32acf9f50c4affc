// A library with the form of a plugin that needs another library.
extern "C" int tessera_no_plugin();
extern "C" const void* GetPjrtApi();
extern "C" const void* GetPjrtApi() {
  tessera_no_plugin();
  return nullptr;
}
