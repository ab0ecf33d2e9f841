// The committed corpora as an ordinary test: every file, cut off at a few places, and some
// mutations of it. No crash, no sanitizer's report, no broken property.
#include <doctest/doctest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "tests/fuzz/mutate.h"
#include "tests/fuzz/targets.h"

namespace imagefs_guard::play_corpus {

namespace {

using namespace imagefs_guard::fuzz;

constexpr int kMutationsPerFile = 24;
constexpr std::size_t kInputLimit = std::size_t{64} << 10;

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// In the order of their names, so that a failure comes again.
std::set<std::filesystem::path> files_of(const Target& target) {
  std::set<std::filesystem::path> files;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(CORPUS) / target.name, error)) {
    files.insert(entry.path());
  }
  return files;
}

void play(const Target& target, const std::string& input, std::mt19937_64& random) {
  target.run(input);
  for (std::size_t part = 1; part < 4; ++part) {
    target.run(std::string_view(input).substr(0, input.size() * part / 4));
  }
  const Mutation mutation{.shape = target.shape, .size_limit = kInputLimit, .plain = mutate_bytes};
  std::string changed = input;
  for (int i = 0; i < kMutationsPerFile; ++i) {
    changed = mutate(i % 8 == 0 ? input : changed, mutation, random);
    target.run(changed);
  }
}

}  // namespace

TEST_CASE("corpora: no crash, and every property holds") {
  for (const Target& target : kTargets) {
    CAPTURE(target.name);
    const std::set<std::filesystem::path> files = files_of(target);
    CHECK(!files.empty());
    target.run("");
    for (const std::filesystem::path& path : files) {
      // A crash shows no doctest message: the last line names the file.
      std::fprintf(stderr, "%s/%s\n", target.name, path.filename().c_str());
      std::mt19937_64 random(1);
      play(target, read(path), random);
    }
  }
}

TEST_CASE("mutations: the seed alone decides, and the limit is kept") {
  const std::string json = R"({"a":[1,{"b":"x"}],"c":null})";
  const std::string frames("\0\0\0\0\2\x08\x01\0\0\0\0\0", 12);
  for (const auto& [shape, input] : {std::pair{Shape::JsonLines, json},
                                     std::pair{Shape::GrpcFrames, frames},
                                     std::pair{Shape::Protobuf, std::string("\x0a\x02\x08\x01")},
                                     std::pair{Shape::Text, json}}) {
    const Mutation mutation{.shape = shape, .size_limit = 40, .plain = mutate_bytes};
    std::mt19937_64 one(7);
    std::mt19937_64 same(7);
    std::set<std::string> different;
    for (int i = 0; i < 200; ++i) {
      const std::string changed = mutate(input, mutation, one);
      CHECK(changed == mutate(input, mutation, same));
      CHECK(changed.size() <= 40);
      different.insert(changed);
    }
    CHECK(different.size() > 50);
  }
}

}  // namespace imagefs_guard::play_corpus
