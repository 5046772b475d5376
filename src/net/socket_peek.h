// What a socket has to say, without taking it and without ever blocking.
#pragma once

namespace baton::net {

enum class Peek {
  kQuiet,  ///< open, nothing to read
  kData,   ///< something to read
  kGone,   ///< the peer has closed, or the connection is broken
};

[[nodiscard]] Peek peek(int socket);

}  // namespace baton::net
