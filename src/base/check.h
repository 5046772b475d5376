// BATON_CHECK: a programmer's error aborts with file, line and message. Never reachable from input.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

/// Aborts unless `condition` holds; further arguments are a fmt format and its values.
#define BATON_CHECK(condition, ...)                                                        \
  do {                                                                                     \
    if (!(condition)) [[unlikely]] {                                                       \
      std::fprintf(stderr, "%s:%d: check failed: %s %s\n", __FILE__, __LINE__, #condition, \
                   ::fmt::format("" __VA_ARGS__).c_str());                                 \
      std::abort();                                                                        \
    }                                                                                      \
  } while (false)
