// untested: containerd_test.cc has its cases.
#include "agent/wire/cri.h"

#include "agent/wire/protobuf.h"

namespace imagefs_guard::wire {

namespace {

Error too_many(const char* what) {
  return Error{ErrorKind::ResourceExhausted, std::string("too many ") + what};
}

/// Value of a UInt64Value message.
Result<std::int64_t> decode_wrapped(std::string_view message) {
  std::int64_t value = 0;
  TRY(read_message(message, [&](protozero::pbf_reader& reader) -> Result<void> {
    if (reader.tag() == 1) {
      value = take_integer(reader);
    } else {
      reader.skip();
    }
    return {};
  }));
  return value < 0 ? 0 : value;
}

Result<CriFilesystemUsage> decode_usage_entry(std::string_view message) {
  CriFilesystemUsage usage;
  const Result<void> read =
      read_message(message, [&](protozero::pbf_reader& reader) -> Result<void> {
        switch (reader.tag()) {
          case 2:
            usage.mountpoint = TRY(nested(take_bytes(reader), 1));
            break;
          case 3:
            usage.used_bytes = TRY(decode_wrapped(take_bytes(reader)));
            break;
          case 4:
            usage.inodes_used = TRY(decode_wrapped(take_bytes(reader)));
            break;
          default:
            reader.skip();
        }
        return {};
      });
  if (!read) {
    return read.error();
  }
  return usage;
}

Result<void> append_text(std::vector<std::string>& list, std::string_view text) {
  if (list.size() >= kCriListLimit) {
    return too_many("names of an image");
  }
  list.emplace_back(text);
  return {};
}

Result<CriImage> decode_cri_image(std::string_view message) {
  CriImage image;
  TRY(read_message(message, [&](protozero::pbf_reader& reader) -> Result<void> {
    switch (reader.tag()) {
      case 1:
        image.id = take_bytes(reader);
        break;
      case 2:
        return append_text(image.repo_tags, take_bytes(reader));
      case 3:
        return append_text(image.repo_digests, take_bytes(reader));
      case 4:
        image.compressed_bytes = static_cast<std::uint64_t>(take_integer(reader));
        break;
      case 8:
        image.pinned = take_integer(reader) != 0;
        break;
      default:
        reader.skip();
    }
    return {};
  }));
  return image;
}

Result<CriCondition> decode_condition(std::string_view message) {
  CriCondition condition;
  TRY(read_message(message, [&](protozero::pbf_reader& reader) -> Result<void> {
    switch (reader.tag()) {
      case 1:
        condition.type = take_bytes(reader);
        break;
      case 2:
        condition.status = take_integer(reader) != 0;
        break;
      case 3:
        condition.reason = take_bytes(reader);
        break;
      case 4:
        condition.message = take_bytes(reader);
        break;
      default:
        reader.skip();
    }
    return {};
  }));
  return condition;
}

Result<void> decode_info_entry(std::string_view message, CriStatus& status) {
  std::string_view key;
  std::string_view value;
  TRY(read_message(message, [&](protozero::pbf_reader& reader) -> Result<void> {
    if (reader.tag() == 1) {
      key = take_bytes(reader);
    } else if (reader.tag() == 2) {
      value = take_bytes(reader);
    } else {
      reader.skip();
    }
    return {};
  }));
  if (status.info.size() >= kCriListLimit) {
    return too_many("info entries");
  }
  status.info.insert_or_assign(std::string(key), std::string(value));
  return {};
}

}  // namespace

std::string encode_cri_version() {
  std::string message;
  protozero::pbf_writer(message).add_string(1, "v1");
  return message;
}

Result<CriVersion> decode_cri_version(std::string_view message) {
  CriVersion version;
  TRY(read_message(message, [&](protozero::pbf_reader& reader) -> Result<void> {
    switch (reader.tag()) {
      case 2:
        version.runtime_name = take_bytes(reader);
        break;
      case 3:
        version.runtime_version = take_bytes(reader);
        break;
      case 4:
        version.runtime_api_version = take_bytes(reader);
        break;
      default:
        reader.skip();
    }
    return {};
  }));
  return version;
}

Result<std::vector<CriFilesystemUsage>> decode_image_fs_info(std::string_view message) {
  std::vector<CriFilesystemUsage> usages;
  const Result<void> read =
      read_message(message, [&](protozero::pbf_reader& reader) -> Result<void> {
        if (reader.tag() != 1 || !is_bytes(reader)) {
          reader.skip();
          return {};
        }
        if (usages.size() >= kCriListLimit) {
          return too_many("image filesystems");
        }
        usages.push_back(TRY(decode_usage_entry(take_bytes(reader))));
        return {};
      });
  if (!read) {
    return read.error();
  }
  return usages;
}

std::string encode_image_spec_request(std::string_view image) {
  std::string message;
  protozero::pbf_writer writer(message);
  protozero::pbf_writer spec(writer, 1);
  spec.add_string(1, image.data(), image.size());
  spec.commit();
  return message;
}

Result<std::vector<CriImage>> decode_cri_images(std::string_view message) {
  std::vector<CriImage> images;
  const Result<void> read =
      read_message(message, [&](protozero::pbf_reader& reader) -> Result<void> {
        if (reader.tag() != 1 || !is_bytes(reader)) {
          reader.skip();
          return {};
        }
        if (images.size() >= kCriImagesLimit) {
          return too_many("images");
        }
        images.push_back(TRY(decode_cri_image(take_bytes(reader))));
        return {};
      });
  if (!read) {
    return read.error();
  }
  return images;
}

std::string encode_cri_status() {
  std::string message;
  protozero::pbf_writer(message).add_bool(1, true);
  return message;
}

Result<CriStatus> decode_cri_status(std::string_view message) {
  CriStatus status;
  const auto take_conditions = [&](std::string_view conditions) {
    return read_message(conditions, [&](protozero::pbf_reader& reader) -> Result<void> {
      if (reader.tag() != 1 || !is_bytes(reader)) {
        reader.skip();
        return {};
      }
      if (status.conditions.size() >= kCriListLimit) {
        return too_many("conditions");
      }
      status.conditions.push_back(TRY(decode_condition(take_bytes(reader))));
      return {};
    });
  };
  TRY(read_message(message, [&](protozero::pbf_reader& reader) -> Result<void> {
    if (reader.tag() == 1) {
      return take_conditions(take_bytes(reader));
    }
    if (reader.tag() == 2) {
      return decode_info_entry(take_bytes(reader), status);
    }
    reader.skip();
    return {};
  }));
  return status;
}

}  // namespace imagefs_guard::wire
