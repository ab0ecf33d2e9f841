#pragma once
/// For tests only: a containerd that lives in memory, behind the interface of io/grpc. Refs can be
/// locked by a "pull", streams cut, the socket taken away. Tests assert on its state, not on calls.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>
#include <set>
#include <string>
#include <vector>

#include "agent/core/node_snapshot.h"
#include "agent/io/grpc.h"
#include "agent/io/loop.h"

namespace imagefs_guard {

class FakeContainerd final : public GrpcClient {
 public:
  struct FakeLease {
    std::vector<std::string> content;  // digests
    std::vector<std::string> ingests;
    bool expires = true;
  };

  explicit FakeContainerd(EventLoop& loop) : loop_(loop) {}

  // ---- state, to be set and looked at -----------------------------------------------------
  bool reachable = true;
  std::map<std::string, LocalImage> images;
  std::map<std::string, std::string> blobs;        // digest → content
  std::map<std::string, std::int64_t> blob_sizes;  // digest → size, for those without
  std::map<std::string, std::int64_t> committed;   // snapshot name → usage
  std::map<std::string, std::int64_t> active;      // snapshot key → usage
  std::map<std::string, std::int64_t> ingests;     // ref → offset
  std::int64_t ingest_total_bytes = 0;             // what is said of each; 0 = not known
  std::map<std::string, FakeLease> leases;
  std::set<std::string> locked_by_pulls;  // refs
  // Left by pulls that were cancelled under way. Directories go with the next removal of a
  // snapshot, files with the collection that follows the next deletion of a blob.
  std::set<std::string> orphan_directories;
  std::set<std::string> orphan_files;
  std::set<std::string> image_ids;   // what CRI's RemoveImage can remove
  std::map<std::string, int> calls;  // by method, without the service

  /// Fails the next call of that method ("List" of "…Images/List": "Images/List").
  void fail_next(const std::string& method, ErrorKind kind) { failures_[method] = kind; }

  [[nodiscard]] bool is_held(const std::string& ref) const {
    for (const FakeCall* call : calls_) {
      if (call->held_ref == ref) {
        return true;
      }
    }
    return false;
  }

  [[nodiscard]] std::size_t open_streams() const { return calls_.size(); }

  /// containerd restarts: every stream ends, nothing is lost.
  void cut_streams() {
    for (FakeCall* call : std::vector<FakeCall*>(calls_.begin(), calls_.end())) {
      call->held_ref.clear();
      answer(*call, {}, Error{ErrorKind::Unavailable, "connection reset"});
    }
  }

  struct Event {
    std::string topic;
    std::string key;
    std::string name;
  };

  void publish(const Event& event) {
    std::string payload;
    protozero::pbf_writer payload_writer(payload);
    payload_writer.add_string(1, event.key);
    if (!event.name.empty()) {
      payload_writer.add_string(2, event.name);
    }
    std::string any;
    protozero::pbf_writer(any).add_bytes(2, payload);
    std::string message;
    protozero::pbf_writer writer(message);
    writer.add_string(2, "k8s.io");
    writer.add_string(3, event.topic);
    writer.add_message(4, any);
    for (FakeCall* call : calls_) {
      if (call->subscribed) {
        send(*call, message);
      }
    }
  }

  [[nodiscard]] bool has_subscriber() const {
    for (const FakeCall* call : calls_) {
      if (call->subscribed) {
        return true;
      }
    }
    return false;
  }

  // ---- GrpcClient --------------------------------------------------------------------------
  [[nodiscard]] std::unique_ptr<GrpcCall> unary(
      const std::string& method,
      std::string request,
      Duration,
      std::function<void(Result<std::string>)> done) override {
    auto reply = std::make_shared<std::string>();
    return begin(
        method,
        request,
        [reply](std::string_view message) { *reply = message; },
        [reply, done = std::move(done)](Result<void> end) {
          if (end) {
            done(*reply);
          } else {
            done(std::move(end).error());
          }
        });
  }

  [[nodiscard]] std::unique_ptr<GrpcCall> server_stream(
      const std::string& method,
      std::string request,
      Duration,
      GrpcMessageHandler on_message,
      std::function<void(Result<void>)> done) override {
    return begin(method, request, std::move(on_message), std::move(done));
  }

  [[nodiscard]] std::unique_ptr<GrpcCall> open_stream(
      const std::string& method,
      std::string first_message,
      GrpcMessageHandler on_message,
      std::function<void(Result<void>)> done) override {
    return begin(method, first_message, std::move(on_message), std::move(done));
  }

 private:
  struct Handlers {
    GrpcMessageHandler on_message;
    std::function<void(Result<void>)> done;
  };

  struct FakeCall final : GrpcCall {
    explicit FakeCall(FakeContainerd& fake) : owner(fake) { owner.calls_.push_back(this); }

    FakeCall(const FakeCall&) = delete;
    FakeCall& operator=(const FakeCall&) = delete;

    ~FakeCall() override { std::erase(owner.calls_, this); }

    FakeContainerd& owner;
    std::shared_ptr<Handlers> handlers = std::make_shared<Handlers>();
    std::string held_ref;
    bool subscribed = false;
  };

  using Fields = std::map<std::uint32_t, std::string>;
  using Writer = protozero::pbf_writer;

  std::unique_ptr<GrpcCall> begin(const std::string& method,
                                  const std::string& request,
                                  GrpcMessageHandler on_message,
                                  std::function<void(Result<void>)> done) {
    auto call = std::make_unique<FakeCall>(*this);
    *call->handlers = {std::move(on_message), std::move(done)};
    const std::string name = method.substr(method.rfind('.') + 1);
    ++calls[name];
    const auto failure = failures_.find(name);
    if (!reachable) {
      answer(*call, {}, Error{ErrorKind::Unavailable, "connect: No such file or directory"});
    } else if (failure != failures_.end()) {
      answer(*call, {}, Error{failure->second, "as the test wants"});
      failures_.erase(failure);
    } else {
      const bool synchronous = request.ends_with("\x10\x01");  // Leases.Delete's second field
      serve(*call, name, read_fields(request), synchronous);
    }
    return call;
  }

  static Fields read_fields(const std::string& request) {
    Fields fields;
    protozero::pbf_reader reader(request);
    while (reader.next()) {
      if (reader.wire_type() == protozero::pbf_wire_type::length_delimited) {
        const std::uint32_t tag = reader.tag();
        fields[tag] = reader.get_string();
      } else {
        reader.skip();
      }
    }
    return fields;
  }

  void send(FakeCall& call, std::string message) {
    loop_.defer([weak = std::weak_ptr<Handlers>(call.handlers), text = std::move(message)] {
      if (const std::shared_ptr<Handlers> handlers = weak.lock()) {
        handlers->on_message(text);
      }
    });
  }

  void answer(FakeCall& call, std::optional<std::string> message, Result<void> end) {
    if (message) {
      send(call, *std::move(message));
    }
    loop_.defer([weak = std::weak_ptr<Handlers>(call.handlers), result = std::move(end)] {
      if (const std::shared_ptr<Handlers> handlers = weak.lock()) {
        handlers->done(result);
      }
    });
  }

  void serve(FakeCall& call, const std::string& name, Fields fields, bool is_synchronous) {
    if (name == "Content/Write" && fields.contains(6)) {
      serve_write_blob(call, fields[4], fields[6]);
    } else if (name == "Content/Write") {
      serve_write(call, fields[2], fields[4]);
    } else if (name == "Content/Delete") {
      blob_deleted_ = true;
      answer(call, "", blobs.erase(fields[1]) > 0 ? Result<void>() : not_found(fields[1]));
    } else if (name == "Events/Subscribe") {
      call.subscribed = true;
    } else if (name == "Content/Abort") {
      answer(call, "", ingests.erase(fields[1]) > 0 ? Result<void>() : not_found(fields[1]));
    } else if (name == "Leases/Create") {
      const bool is_new = leases.emplace(fields[1], FakeLease{.expires = false}).second;
      answer(call, "", is_new ? Result<void>() : already_exists(fields[1]));
    } else if (name == "Leases/Delete") {
      if (is_synchronous && leases.contains(fields[1]) && blob_deleted_) {
        orphan_files.clear();  // a collection runs at once
      }
      answer(call, "", leases.erase(fields[1]) > 0 ? Result<void>() : not_found(fields[1]));
    } else if (name == "ImageService/RemoveImage") {
      // A reply even where there is no such image, as CRI has it.
      protozero::pbf_reader spec(fields[1]);
      while (spec.next(1)) {
        image_ids.erase(spec.get_string());
      }
      answer(call, "", {});
    } else if (name == "Snapshots/Prepare") {
      active[fields[2]] = 0;
      answer(call, "", {});
    } else if (name == "Snapshots/Remove") {
      orphan_directories.clear();
      answer(call, "", active.erase(fields[2]) > 0 ? Result<void>() : not_found(fields[2]));
    } else {
      serve_read(call, name, fields);
    }
  }

  void serve_write_blob(FakeCall& call, const std::string& expected, const std::string& data) {
    const bool is_new = blobs.emplace(expected, data).second;
    answer(call, "", is_new ? Result<void>() : already_exists(expected));
  }

  void serve_write(FakeCall& call, const std::string& ref, const std::string& expected) {
    if (blobs.contains(expected) || blob_sizes.contains(expected)) {
      answer(call, {}, Error{ErrorKind::AlreadyExists, expected + ": already exists"});
    } else if (locked_by_pulls.contains(ref) || is_held(ref)) {
      answer(call, {}, Error{ErrorKind::Unavailable, "ref " + ref + " locked for 1s: unavailable"});
    } else {
      ingests.try_emplace(ref, 0);
      call.held_ref = ref;
      std::string message;
      Writer writer(message);
      writer.add_int64(4, ingests[ref]);
      writer.add_int64(5, ingest_total_bytes);
      send(call, message);
    }
  }

  void serve_read(FakeCall& call, const std::string& name, Fields& fields) {
    std::string message;
    Writer writer(message);
    Result<void> end;
    if (name == "Version/Version") {
      writer.add_string(1, "1.6.20");
    } else if (name == "Images/List") {
      write_images(writer);
    } else if (name == "Content/List") {
      write_blobs(writer);
    } else if (name == "Content/ListStatuses") {
      for (const auto& [ref, offset] : ingests) {
        writer.add_message(1, status(ref, offset));
      }
    } else if (name == "Content/Info") {
      end = write_info(writer, fields[1]);
    } else if (name == "Content/Read") {
      end = blobs.contains(fields[1]) ? Result<void>() : not_found(fields[1]);
      writer.add_bytes(2, blobs[fields[1]]);
    } else if (name == "Snapshots/List") {
      write_snapshots(writer);
    } else if (name == "Snapshots/Usage") {
      end = write_usage(writer, fields[2]);
    } else if (name == "Leases/List") {
      write_leases(writer);
    } else if (name == "Leases/ListResources") {
      end = write_resources(writer, fields[1]);
    } else {
      end = Error{ErrorKind::Unimplemented, name};
    }
    answer(call, message, end);
  }

  void write_images(Writer& writer) const {
    for (const auto& [name, image] : images) {
      std::string target;
      Writer(target).add_string(2, to_string(image.target));
      std::string label;
      Writer label_writer(label);
      label_writer.add_string(1, "io.cri-containerd.pinned");
      label_writer.add_string(2, image.pinned ? "pinned" : "");
      std::string entry;
      Writer entry_writer(entry);
      entry_writer.add_string(1, name);
      entry_writer.add_message(2, label);
      entry_writer.add_message(3, target);
      writer.add_message(1, entry);
    }
  }

  static std::string info(const std::string& digest, std::int64_t size) {
    std::string entry;
    Writer entry_writer(entry);
    entry_writer.add_string(1, digest);
    entry_writer.add_int64(2, size);
    return entry;
  }

  void write_blobs(Writer& writer) const {
    for (const auto& [digest, content] : blobs) {
      writer.add_message(1, info(digest, static_cast<std::int64_t>(content.size())));
    }
    for (const auto& [digest, size] : blob_sizes) {
      writer.add_message(1, info(digest, size));
    }
  }

  Result<void> write_info(Writer& writer, const std::string& digest) const {
    const auto blob = blobs.find(digest);
    const auto size = blob_sizes.find(digest);
    if (blob == blobs.end() && size == blob_sizes.end()) {
      return not_found(digest);
    }
    writer.add_message(
        1,
        info(digest,
             blob != blobs.end() ? static_cast<std::int64_t>(blob->second.size()) : size->second));
    return {};
  }

  static std::string status(const std::string& ref, std::int64_t offset) {
    std::string entry;
    Writer entry_writer(entry);
    entry_writer.add_string(3, ref);
    entry_writer.add_int64(4, offset);
    return entry;
  }

  void write_snapshots(Writer& writer) const {
    const auto add = [&writer](const std::string& name, int kind) {
      std::string entry;
      Writer entry_writer(entry);
      entry_writer.add_string(1, name);
      entry_writer.add_enum(3, kind);
      writer.add_message(1, entry);
    };
    for (const auto& [name, usage] : committed) {
      add(name, 3);
    }
    for (const auto& [key, usage] : active) {
      add(key, 2);
    }
  }

  Result<void> write_usage(Writer& writer, const std::string& key) const {
    for (const auto* list : {&committed, &active}) {
      const auto found = list->find(key);
      if (found != list->end()) {
        writer.add_int64(1, found->second);
        writer.add_int64(2, 7);
        return {};
      }
    }
    return not_found(key);
  }

  void write_leases(Writer& writer) const {
    for (const auto& [id, lease] : leases) {
      std::string entry;
      Writer entry_writer(entry);
      entry_writer.add_string(1, id);
      if (lease.expires) {
        std::string label;
        Writer(label).add_string(1, "containerd.io/gc.expire");
        entry_writer.add_message(3, label);
      }
      writer.add_message(1, entry);
    }
  }

  Result<void> write_resources(Writer& writer, const std::string& id) const {
    const auto found = leases.find(id);
    if (found == leases.end()) {
      return not_found(id);
    }
    const auto add = [&writer](const std::string& resource, const char* type) {
      std::string entry;
      Writer entry_writer(entry);
      entry_writer.add_string(1, resource);
      entry_writer.add_string(2, type);
      writer.add_message(1, entry);
    };
    for (const std::string& digest : found->second.content) {
      add(digest, "content");
    }
    for (const std::string& ref : found->second.ingests) {
      add(ref, "ingests");
    }
    return {};
  }

  static Error already_exists(const std::string& what) {
    return Error{ErrorKind::AlreadyExists, what + ": already exists"};
  }

  static Error not_found(const std::string& what) {
    return Error{ErrorKind::NotFound, what + ": not found"};
  }

  EventLoop& loop_;
  std::vector<FakeCall*> calls_;
  std::map<std::string, ErrorKind> failures_;
  bool blob_deleted_ = false;
};

}  // namespace imagefs_guard
