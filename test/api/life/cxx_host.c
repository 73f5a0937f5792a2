// cxx_host.c: a C program that loads C++ while it runs: cxx_host PLUGIN FUNCTION

#include <dlfcn.h>

#include "../testing.h"

int main(int argc, char **argv) {
  CHECK(argc == 3);
  CHECK(!dlsym(RTLD_DEFAULT, "_ZSt15get_new_handlerv"));
  void *plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  CHECK(plugin);
  bool (*function)(void) = (bool (*)(void))(uintptr_t)dlsym(plugin, argv[2]);
  CHECK(function && function());
  return 0;
}
