#include "run/machine/library.h"

#include <bit>
#include <cstring>
#include <elf.h>
#include <fmt/format.h>
#include <fstream>

namespace tessera::run {

namespace {

#if defined(__x86_64__)
constexpr Elf64_Half kOwnMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr Elf64_Half kOwnMachine = EM_AARCH64;
#else
constexpr Elf64_Half kOwnMachine = EM_NONE;  // any file is tried
#endif

std::string processor_name(Elf64_Half machine) {
  switch (machine) {
    case EM_X86_64:
      return "x86-64";
    case EM_AARCH64:
      return "aarch64";
    case EM_386:
      return "x86 of 32 bits";
    case EM_PPC64:
      return "ppc64";
    case EM_RISCV:
      return "riscv";
    case EM_S390:
      return "s390";
    default:
      return fmt::format("the machine with number {}", machine);
  }
}

}  // namespace

std::string other_machine(const std::string& path) {
  // Up to the number of the machine, headers of 32 and of 64 bits are equal.
  Elf64_Ehdr header = {};
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(&header), sizeof(header));
  constexpr int kOrder = std::endian::native == std::endian::little ? ELFDATA2LSB : ELFDATA2MSB;
  const bool is_read = file && std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
                       header.e_ident[EI_DATA] == kOrder;
  if (!is_read || kOwnMachine == EM_NONE || header.e_machine == kOwnMachine) return "";
  return processor_name(header.e_machine);
}

std::string own_machine() {
  return kOwnMachine == EM_NONE ? "this processor" : processor_name(kOwnMachine);
}

}  // namespace tessera::run
