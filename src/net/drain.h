// The end of a server that finishes what it has.
#pragma once

#include <chrono>
#include <functional>

#include "net/http_server.h"

namespace baton::net {

/// Accepts no more, has `finish` bring the work behind the exchanges to an end within `timeout`
/// (true: all of it was done), lets what was answered be written in what is left of the time (a
/// second at least; a client that doesn't read can't hold us up for longer), and stops the server.
/// True if all was done and written.
bool drain(HttpServer& server, std::chrono::milliseconds timeout,
           const std::function<bool(std::chrono::nanoseconds timeout)>& finish);

}  // namespace baton::net
