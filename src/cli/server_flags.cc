#include "cli/server_flags.h"

#include <CLI/CLI.hpp>
#include <cstdlib>

#include "cli/flag_help.h"
#include "cli/size.h"

namespace baton::cli {

void add_server_flags(CLI::App& command, ServerFlags& flags) {
  const FlagAdder add{command};
  add("--host", flags.host, "address to listen on");
  add("--port", flags.port, "port to listen on; 0 = any free one");
  add("--max-body", flags.max_body, "largest request body");
  add("--allow-origin", flags.allow_origin, "CORS: the allowed origin, or *");
  add("--api-key", flags.api_key, "key that clients must send as a Bearer token")
      ->envname("BATON_API_KEY");
  add("--drain-timeout", flags.drain_timeout, "how long running requests may take on SIGTERM");
}

void note_api_key(const CLI::App& command, ServerFlags& flags) {
  flags.api_key_given = command.count("--api-key") > 0 || std::getenv("BATON_API_KEY") != nullptr;
}

Result<ServerSettings> check(const ServerFlags& flags) {
  if (auto s = check_range("--port", flags.port, 0, 65535); !s) return tl::unexpected(s.error());
  if (flags.api_key_given && flags.api_key.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "--api-key '' (or BATON_API_KEY): empty; leave it out for a server without a key");
  }
  ServerSettings settings;
  auto body_bytes = parse_bytes("--max-body", flags.max_body);
  if (!body_bytes) return tl::unexpected(body_bytes.error());
  auto drain = parse_duration("--drain-timeout", flags.drain_timeout);
  if (!drain) return tl::unexpected(drain.error());
  settings.drain_timeout = *drain;
  settings.http.host = flags.host;
  settings.http.port = static_cast<uint16_t>(flags.port);
  settings.http.max_body_bytes = *body_bytes;
  settings.http.allow_origin = flags.allow_origin;
  return settings;
}

std::string local_url(const std::string& host, uint16_t port) {
  const bool any = host == "0.0.0.0" || host == "::";
  const bool ipv6 = host.find(':') != std::string::npos;
  return fmt::format("http://{}:{}", any ? "127.0.0.1" : ipv6 ? "[" + host + "]" : host, port);
}

}  // namespace baton::cli
