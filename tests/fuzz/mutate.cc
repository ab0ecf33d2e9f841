#include "tests/fuzz/mutate.h"

#include <algorithm>
#include <vector>

#include "agent/wire/grpc_frame.h"

namespace imagefs_guard::fuzz {

namespace {

std::vector<std::string> lines_of(std::string_view input) {
  std::vector<std::string> lines;
  while (!input.empty()) {
    const std::size_t end = std::min(input.find('\n'), input.size());
    lines.emplace_back(input.substr(0, end));
    input.remove_prefix(std::min(end + 1, input.size()));
  }
  return lines;
}

/// Changes, doubles, removes or swaps elements; `change` makes another of one.
template <typename Change>
void mutate_list(std::vector<std::string>& list, std::mt19937_64& random, Change&& change) {
  if (list.empty()) {
    list.emplace_back();
  }
  const std::size_t at = below(random, list.size());
  const auto place = list.begin() + static_cast<std::ptrdiff_t>(at);
  switch (below(random, 8)) {
    case 0:
      list.insert(place, std::string(list[at]));
      break;
    case 1:
      list.erase(place);
      break;
    case 2:
      std::swap(list[at], list[below(random, list.size())]);
      break;
    default:
      list[at] = change(list[at]);
      break;
  }
}

std::string mutate_json_lines(std::string_view input,
                              const Mutation& mutation,
                              std::mt19937_64& random) {
  // A document over several lines is one, or else each line is.
  if (input.find('\n') == std::string_view::npos || input.find("}\n{") == std::string_view::npos) {
    return mutate_json(input, mutation, random);
  }
  std::vector<std::string> lines = lines_of(input);
  mutate_list(
      lines, random, [&](const std::string& line) { return mutate_json(line, mutation, random); });
  std::string joined;
  for (const std::string& line : lines) {
    joined += line + "\n";
  }
  return joined;
}

std::string mutate_frames(std::string_view input,
                          const Mutation& mutation,
                          std::mt19937_64& random) {
  std::vector<std::string> messages;
  wire::GrpcFrameDecoder decoder(std::size_t{1} << 20);
  const Result<void> fed = decoder.feed(input, [&](std::string_view message) {
    messages.emplace_back(message);
    return true;
  });
  if (!fed || messages.empty()) {
    return mutation.plain(input, random);
  }
  mutate_list(messages, random, [&](const std::string& message) {
    return mutate_protobuf(message, mutation, random);
  });
  std::string frames;
  for (const std::string& message : messages) {
    frames += wire::encode_grpc_frame(message);
  }
  return frames;
}

}  // namespace

std::string mutate_bytes(std::string_view bytes, std::mt19937_64& random) {
  std::string changed(bytes);
  for (std::size_t times = 1 + below(random, 3); times > 0; --times) {
    const std::size_t at = below(random, changed.size() + 1);
    const std::size_t length = std::min(1 + below(random, 8), changed.size() - at);
    switch (below(random, 4)) {
      case 0:
        changed.erase(at, length);
        break;
      case 1:
        changed.insert(at, changed.substr(at, length));
        break;
      case 2:
        changed.insert(at, 1, static_cast<char>(random() & 0xFFU));
        break;
      default:
        if (at < changed.size()) {
          changed[at] = static_cast<char>(changed[at] ^ (1 << below(random, 8)));
        }
        break;
    }
  }
  return changed;
}

std::string mutate(std::string_view input, const Mutation& mutation, std::mt19937_64& random) {
  std::string changed;
  if (below(random, 4) == 0) {
    changed = mutation.plain(input, random);
  } else {
    switch (mutation.shape) {
      case Shape::JsonLines:
        changed = mutate_json_lines(input, mutation, random);
        break;
      case Shape::Protobuf:
        changed = mutate_protobuf(input, mutation, random);
        break;
      case Shape::GrpcFrames:
        changed = mutate_frames(input, mutation, random);
        break;
      case Shape::Text:
      case Shape::Bytes:
        changed = mutation.plain(input, random);
        break;
    }
  }
  changed.resize(std::min(changed.size(), mutation.size_limit));
  return changed;
}

}  // namespace imagefs_guard::fuzz
