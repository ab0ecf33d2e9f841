// libFuzzer's entry points, for the target that the environment variable FUZZ_TARGET names.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/fuzz/mutate.h"
#include "tests/fuzz/targets.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t limit);

namespace {

using namespace imagefs_guard::fuzz;

const Target& target() {
  const char* name = std::getenv("FUZZ_TARGET");
  for (const Target& one : kTargets) {
    if (name != nullptr && std::strcmp(one.name, name) == 0) {
      return one;
    }
  }
  std::fputs("FUZZ_TARGET names none of the targets in targets.h\n", stderr);
  std::abort();
}

/// libFuzzer's own mutations, with its dictionary of what the code compares with.
std::string plain(std::string_view bytes, std::size_t size_limit) {
  std::string changed(bytes);
  const std::size_t limit = std::min(size_limit, changed.size() + 64);
  changed.resize(std::max<std::size_t>(limit, 1));
  const std::size_t size = LLVMFuzzerMutate(reinterpret_cast<std::uint8_t*>(changed.data()),
                                            std::min(bytes.size(), changed.size()),
                                            changed.size());
  changed.resize(size);
  return changed;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Target& one = target();
  one.run(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data,
                                               std::size_t size,
                                               std::size_t limit,
                                               unsigned int seed) {
  std::mt19937_64 random(seed);
  const Mutation mutation{
      .shape = target().shape,
      .size_limit = limit,
      .plain = [limit](std::string_view bytes, std::mt19937_64&) { return plain(bytes, limit); }};
  const std::string changed =
      mutate(std::string_view(reinterpret_cast<const char*>(data), size), mutation, random);
  std::memcpy(data, changed.data(), changed.size());
  return changed.size();
}
