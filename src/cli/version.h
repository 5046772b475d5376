// Which build this is; the definitions are written by cmake/version.cmake at build time.
#pragma once

namespace baton::cli {

extern const char* const kVersion;
extern const char* const kCommit;
extern const char* const kBuildFlags;

}  // namespace baton::cli
