// untested: names of an enum.
#include "agent/core/result.h"

namespace imagefs_guard {

const char* to_string(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::Cancelled:
      return "Cancelled";
    case ErrorKind::InvalidArgument:
      return "InvalidArgument";
    case ErrorKind::DeadlineExceeded:
      return "DeadlineExceeded";
    case ErrorKind::NotFound:
      return "NotFound";
    case ErrorKind::AlreadyExists:
      return "AlreadyExists";
    case ErrorKind::PermissionDenied:
      return "PermissionDenied";
    case ErrorKind::Unauthenticated:
      return "Unauthenticated";
    case ErrorKind::ResourceExhausted:
      return "ResourceExhausted";
    case ErrorKind::FailedPrecondition:
      return "FailedPrecondition";
    case ErrorKind::Aborted:
      return "Aborted";
    case ErrorKind::Unimplemented:
      return "Unimplemented";
    case ErrorKind::Unavailable:
      return "Unavailable";
    case ErrorKind::Internal:
      return "Internal";
  }
  return "Unknown";
}

}  // namespace imagefs_guard
