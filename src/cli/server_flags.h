// The flags of every command that listens: `serve`, `engine`, `router`.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "net/http_server.h"

namespace CLI {
class App;
}

namespace baton::cli {

/// As typed; the texts are understood by check().
struct ServerFlags {
  std::string host = "127.0.0.1";
  int port = 8000;
  std::string max_body = "32MiB";
  std::string allow_origin;
  std::string api_key;
  bool api_key_given = false;  ///< an empty one is then a mistake, not an open server
  std::string drain_timeout = "30s";
};

/// Understood.
struct ServerSettings {
  net::HttpServerOptions http;
  std::chrono::milliseconds drain_timeout{};
};

void add_server_flags(CLI::App& command, ServerFlags& flags);
/// After the parse: whether a key was given.
void note_api_key(const CLI::App& command, ServerFlags& flags);
/// Errors name the flag, its value and what would be right.
[[nodiscard]] Result<ServerSettings> check(const ServerFlags& flags);

/// The start of a URL that reaches the server from this host.
[[nodiscard]] std::string local_url(const std::string& host, uint16_t port);

}  // namespace baton::cli
