#pragma once
/// Asks a registry how large one layer will be once unpacked, by a few Range requests: its table of
/// contents where it has one (exact), else the gzip trailer or the zstd header together with the
/// tar headers at its beginning. A source that fails or lies is passed over for the next one.
/// Made by layer_sizes.h, one per layer that is being asked for.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "agent/core/node_snapshot.h"
#include "agent/registry/registry_client.h"
#include "agent/wire/toc_reader.h"

namespace imagefs_guard {

struct LayerQuestion {
  std::string image;  // whose repository is asked
  Digest digest;
  std::int64_t compressed_bytes = 0;
  LayerCompression compression = LayerCompression::Unknown;
  LayerHints hints;
  std::int64_t block_bytes = 4096;  // of the image filesystem
};

class LayerProbe {
 public:
  /// The best fact, or why there is none: Unimplemented where the layer and its registry have
  /// nothing to tell. Once, maybe from inside start(); it must not destroy the probe.
  using Answer = std::function<void(Result<SizeFact>)>;

  /// `client` outlives it. Destroying it ends it without an answer.
  LayerProbe(RegistryClient& client, LayerQuestion question, Answer answer);
  LayerProbe(const LayerProbe&) = delete;
  LayerProbe& operator=(const LayerProbe&) = delete;

  void start();

 private:
  void ask(std::int64_t offset, std::int64_t length, void (LayerProbe::*next)(Result<std::string>));
  void ask_tail();
  void on_tail(Result<std::string> tail);
  void begin_toc(const TocPlace& place);
  void ask_toc_piece();
  void on_toc_piece(Result<std::string> piece);
  void after_toc(Error error);
  void ask_head();
  void on_head(Result<std::string> head);
  void take_head(std::string_view head);
  void finish(Result<SizeFact> result);

  RegistryClient& client_;
  LayerQuestion question_;
  Answer answer_;
  std::optional<SizeFact> trailer_;
  TocPlace place_;
  std::unique_ptr<TocReader> toc_;
  std::int64_t toc_read_bytes_ = 0;
  std::shared_ptr<char> alive_ = std::make_shared<char>();
};

}  // namespace imagefs_guard
