// untested: ends the process.
#include "agent/core/verify.h"

#include <cstdio>
#include <cstdlib>

namespace imagefs_guard {

namespace {

const char* verify_label = "";

}  // namespace

void set_verify_label(const char* label) {
  verify_label = label;
}

void verify_failed(const char* expression, const char* file, int line) {
  // stderr is the log: one JSON line even here, so that the shipper keeps it whole.
  std::fprintf(stderr,
               "{\"level\":\"error\",\"event\":\"invariant_broken\",\"msg\":\"%s at %s:%d %s\"}\n",
               expression,
               file,
               line,
               verify_label);
  std::abort();
}

}  // namespace imagefs_guard
