#include "agent/core/sha256.h"

#include <doctest/doctest.h>

#include <string>

namespace imagefs_guard::sha256_test {

TEST_CASE("sha256: published vectors and every padding edge") {
  struct Case {
    std::string text;
    const char* want;
  };

  const auto repeated = [](std::size_t count) { return std::string(count, 'a'); };
  for (const Case& c : {
           Case{"", "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
           Case{"abc", "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
           Case{"{}", "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"},
           Case{repeated(55),
                "sha256:9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318"},
           Case{repeated(56),
                "sha256:b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a"},
           Case{repeated(63),
                "sha256:7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34"},
           Case{repeated(64),
                "sha256:ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb"},
           Case{repeated(119),
                "sha256:31eba51c313a5c08226adf18d4a359cfdfd8d2e816b13f4af952f7ea6584dcfb"},
           Case{repeated(120),
                "sha256:2f3d335432c70b580af0e8e1b3674a7c020d683aa5f73aaaedfdc55af904c21c"},
           Case{repeated(1'000'000),
                "sha256:cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
       }) {
    CAPTURE(c.want);
    CHECK(to_string(sha256(c.text)) == c.want);
    Sha256 piecewise;
    for (std::size_t at = 0; at < c.text.size(); at += 7) {
      piecewise.update(std::string_view(c.text).substr(at, 7));
    }
    CHECK(to_string(piecewise.finish()) == c.want);
  }
}

TEST_CASE("chain id: hash of parent and diff id, prefixes included") {
  CHECK(to_string(chain_id_of(sha256("one"), sha256("two"))) ==
        "sha256:ee90d7132b9e9a049b7b0a88db345ca31fb5e8a74a5ee57210478a9a2522d499");
}

}  // namespace imagefs_guard::sha256_test
